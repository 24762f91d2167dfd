//! Names of functions by their address: of the kernel, and of programs and shared objects.
//!
//! Facts: proc_kallsyms(5) (`ADDRESS TYPE NAME`; all addresses are zero for whom `kernel.kptr_restrict` hides them), and elf(5):
//! what an object exports for others stands in `.dynsym` and is left there when it is stripped; `.symtab` has the rest. Where
//! a stripped object's function is its own, the nearest name before it tells where it lies, and is marked as no more than that:
//! linkers keep the functions of a source file together, and `make` those of a folder.

use crate::os::object_file::read_object;
use object::read::{ObjectSegment, ObjectSymbol};
use object::{Object, SymbolKind};
use std::fs::File;
use std::io::BufRead;

/// Names of one object that are kept: some programs have millions.
const SYMBOLS_MAX: usize = 300_000;

/// Functions by their addresses.
#[derive(Debug, Default)]
pub(super) struct SymbolTable {
    names: String,
    /// In order.
    functions: Vec<Function>,
}

/// The kernel alone has more than a hundred thousand: 16 bytes each.
#[derive(Debug, Clone, Copy)]
struct Function {
    begin: u64,
    /// `u32::MAX`: up to the next.
    length_bytes: u32,
    /// Where its name begins in `names`.
    name_at: u32,
}

impl Function {
    fn is_in(&self, address: u64) -> bool {
        self.length_bytes == u32::MAX || address - self.begin < u64::from(self.length_bytes)
    }
}

impl SymbolTable {
    fn push(&mut self, begin: u64, length_bytes: u32, name: &str) {
        let Ok(name_at) = u32::try_from(self.names.len()) else { return };
        if self.functions.len() < SYMBOLS_MAX {
            self.functions.push(Function { begin, length_bytes, name_at });
            self.names.push_str(name);
            self.names.push('\n');
        }
    }

    /// In order; of several names of one function the first stays. What was room to grow is given back.
    fn sorted(mut self) -> Self {
        self.functions.sort_unstable_by_key(|one| (one.begin, one.name_at));
        self.functions.dedup_by_key(|one| one.begin);
        self.functions.shrink_to_fit();
        self.names.shrink_to_fit();
        self
    }

    /// The function that an address is in.
    pub(super) fn name(&self, address: u64) -> Option<&str> {
        self.nearest(address).filter(|(_, is_in)| *is_in).map(|(name, _)| name)
    }

    /// The last function that begins before an address, and whether it reaches to it.
    fn nearest(&self, address: u64) -> Option<(&str, bool)> {
        let after = self.functions.partition_point(|one| one.begin <= address);
        let one = self.functions.get(after.checked_sub(1)?)?;
        Some((self.names.get(one.name_at as usize..)?.lines().next()?, one.is_in(address)))
    }

    /// The functions in the lines of `/proc/kallsyms`, each up to the next; none where their addresses are hidden. Line by line: the
    /// whole text would be as large as all else that an agent has.
    pub(super) fn of_kernel(mut text: impl BufRead) -> Self {
        let mut table = Self::default();
        let mut line = String::new();
        while text.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            let mut words = line.split_ascii_whitespace();
            if let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) {
                let address = u64::from_str_radix(address, 16).unwrap_or(0);
                if address != 0 && matches!(kind, "t" | "T" | "w" | "W") {
                    table.push(address, u32::MAX, name);
                }
            }
            line.clear();
        }
        table.sorted()
    }
}

/// A program or shared object.
#[derive(Debug, Default)]
pub(super) struct SharedObject {
    /// Where parts of the file are in its own addresses: offset, length, address.
    segments: Vec<(u64, u64, u64)>,
    symbols: SymbolTable,
}

impl SharedObject {
    /// Reads an object; one that is none, or too large, has no names.
    pub(super) fn of(file: File) -> Self {
        read_object(file, |object| Self::of_parsed(object)).ok().flatten().unwrap_or_default()
    }

    fn of_parsed<'a>(object: &impl Object<'a>) -> Self {
        let segments = object.segments().map(|part| {
            let (offset, length) = part.file_range();
            (offset, length, part.address())
        });
        let mut symbols = SymbolTable::default();
        for symbol in object.symbols().chain(object.dynamic_symbols()) {
            let is_function =
                symbol.kind() == SymbolKind::Text && symbol.is_definition() && symbol.size() > 0;
            if let Ok(name) = symbol.name()
                && is_function
            {
                let length_bytes = u32::try_from(symbol.size()).unwrap_or(u32::MAX);
                symbols.push(symbol.address(), length_bytes, name);
            }
        }
        Self { segments: segments.collect(), symbols: symbols.sorted() }
    }

    /// The function at an offset of the file; `~NAME` where it has no name and lies behind that one.
    pub(super) fn name(&self, offset: u64) -> Option<String> {
        let is_in =
            |(begin, length, _): &&(u64, u64, u64)| (*begin..begin.saturating_add(*length)).contains(&offset);
        let (begin, _, address) = self.segments.iter().find(is_in)?;
        let (name, is_in) = self.symbols.nearest(address.checked_add(offset - begin)?)?;
        Some(if is_in { name.to_owned() } else { format!("~{name}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_reaches_to_the_next_and_hidden_addresses_name_none() {
        let text = "ffffffff81000000 T _stext\nffffffff81000000 T _text\nffffffff81000100 d data\n\
            ffffffff81000200 t tcp_ack\t[tcp]\nnonsense\n";
        let table = SymbolTable::of_kernel(text.as_bytes());
        for (address, name) in [
            (0xffff_ffff_80ff_ffff, None),
            (0xffff_ffff_8100_01ff, Some("_stext")),
            (0xffff_ffff_8100_0200, Some("tcp_ack")),
            (0xffff_ffff_9000_0000, Some("tcp_ack")),
        ] {
            assert_eq!(table.name(address), name, "{address:x}");
        }
        assert_eq!(SymbolTable::of_kernel("0000000000000000 T _stext\n".as_bytes()).name(5), None);
    }

    // An object that this test runs in, and an address outside of all has no name.
    #[test]
    fn functions_of_a_real_object_are_found_by_their_offset() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path =
            maps.lines().find_map(|line| line.find("/libc.so").map(|_| line.rsplit(' ').next().unwrap()));
        let own = SharedObject::of(File::open(path.unwrap()).unwrap());
        let Function { begin, length_bytes, .. } = own.symbols.functions[own.symbols.functions.len() / 2];
        let name = own.symbols.name(begin).unwrap();
        let offset = own.segments.iter().find(|(_, length, at)| (*at..at + length).contains(&begin));
        let offset = offset.map(|(offset, _, address)| offset + (begin - address)).unwrap();
        assert_eq!(own.name(offset).as_deref(), Some(name));
        let end = |one: &Function| one.begin + u64::from(one.length_bytes);
        let gap = own.symbols.functions.windows(2).find(|pair| end(&pair[0]) < pair[1].begin).unwrap()[0];
        let (name, near) = (own.symbols.name(gap.begin).unwrap(), own.symbols.nearest(end(&gap)).unwrap());
        assert_eq!((near, own.symbols.name(end(&gap))), ((name, false), None));
        assert!(length_bytes > 0 && own.name(u64::MAX).is_none());
        let text = SharedObject::of(File::open("/proc/self/status").unwrap());
        assert_eq!(text.name(0), None);
    }
}
