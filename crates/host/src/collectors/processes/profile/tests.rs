//! Places of samples: chains, names, bounds.

use super::*;
use proptest::prelude::*;

#[test]
fn of_a_chain_the_call_and_the_innermost_functions_are_told() {
    let names = ["copy", "skb_copy", "tcp_sendmsg_locked", "tcp_sendmsg", "sock_write_iter", "vfs_writev"];
    let calls = ["do_writev", "__x64_sys_writev", "do_syscall_64"];
    let all: Vec<&str> = names.iter().chain(&calls).copied().collect();
    let text: String =
        all.iter().enumerate().map(|(at, name)| format!("{:x} t {name}\n", (at + 1) * 16)).collect();
    let table = SymbolTable::of_kernel(text.as_bytes());
    let chain: Vec<u64> = (1..=all.len() as u64).map(|at| at * 16 + 3).collect();
    let told = |chain: &[u64]| kernel_functions(chain, &table).join(";");
    assert_eq!(told(&chain), "sys_writev;sock_write_iter;tcp_sendmsg;tcp_sendmsg_locked;skb_copy;copy");
    assert_eq!(told(&chain[6..]), "do_syscall_64;sys_writev;do_writev");
    assert_eq!(told(&[3]), "", "an address below all of them");
    assert_eq!(plain("std::vector<int, my;own*>"), "std::vector<int,_my_own_>");
}

proptest! {
    // Nothing that was hit is lost, however many places there are.
    #[test]
    fn rare_places_are_told_by_program_and_object(counts in prop::collection::vec((0u32..400, 1u64..9), 0..400)) {
        let mut places = Places::new();
        for (place, count) in counts {
            *places.entry(format!("program{};object;function{place}", place % 3)).or_default() += count;
        }
        let kept = bounded(places.clone());
        prop_assert_eq!(kept.values().sum::<u64>(), places.values().sum::<u64>());
        prop_assert!(kept.len() <= PLACES_MAX + 3);
    }
}
