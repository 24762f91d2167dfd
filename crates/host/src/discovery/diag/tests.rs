//! Tests of reading sockets: against sockets of this process, and against lines as kernels write them.

use super::*;
use proptest::prelude::*;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};

fn inode(socket: &impl AsRawFd) -> u64 {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap();
    let link = link.to_string_lossy().into_owned();
    link.trim_start_matches("socket:[").trim_end_matches(']').parse().unwrap()
}

fn net() -> &'static Path {
    Path::new("/proc/self/net")
}

/// By netlink, and by the files.
fn both_tcp() -> [Vec<Tcp>; 2] {
    [tcp().unwrap(), tcp_of_files(net()).unwrap()]
}

#[test]
fn both_ends_of_tcp_connections_are_found() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = TcpListener::bind(address).unwrap();
        let to = listener.local_addr().unwrap();
        let client = TcpStream::connect(to).unwrap();
        let (server, _) = listener.accept().unwrap();
        for all in both_tcp() {
            let of = |wanted: u64| all.iter().find(|socket| socket.inode == wanted).unwrap();
            assert_eq!((of(inode(&listener)).state, of(inode(&listener)).own), (TcpState::Listening, to));
            let (near, far) = (of(inode(&client)), of(inode(&server)));
            assert_eq!((near.own, near.peer, near.state), (far.peer, to, TcpState::Connected));
            assert_eq!(near.uid, rustix::process::geteuid().as_raw());
        }
        let own = client.local_addr().unwrap();
        // The client's end is in TIME_WAIT then, and nobody's.
        drop((client, server));
        let is_gone = |all: &Vec<Tcp>| !all.iter().any(|socket| (socket.own, socket.peer) == (own, to));
        let patience = std::time::Duration::from_secs(5);
        assert!(crate::os::process::wait_until(patience, || both_tcp().iter().all(is_gone)));
    }
}

#[test]
fn both_ends_of_unix_connections_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let client = UnixStream::connect(&path).unwrap();
    let find = |all: &[Unix], wanted: u64| all.iter().find(|socket| socket.inode == wanted).cloned();
    let waiting = unix().unwrap();
    let listening = find(&waiting, inode(&listener)).unwrap();
    assert_eq!((listening.listening, listening.name.as_deref()), (true, path.to_str()));
    assert_eq!(listening.waiting, [inode(&client)]);
    assert!(listening.file.is_some());
    assert_eq!(find(&waiting, inode(&client)).unwrap().peer, Some(0));
    let (server, _) = listener.accept().unwrap();
    let all = unix().unwrap();
    let (near, far) = (find(&all, inode(&client)).unwrap(), find(&all, inode(&server)).unwrap());
    assert_eq!((near.peer, near.name), (Some(inode(&server)), None));
    assert_eq!((far.peer, far.name.as_deref()), (Some(inode(&client)), path.to_str()));
    assert!(near.uid.is_none_or(|uid| uid == rustix::process::geteuid().as_raw()));
    let files = unix_of_files(net()).unwrap();
    assert!(find(&files, inode(&listener)).unwrap().listening);
    let accepted = find(&files, inode(&server)).unwrap();
    assert_eq!((accepted.listening, accepted.name.as_deref()), (false, path.to_str()));
}

#[test]
fn lines_of_the_kernel_parse() {
    let tcp = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000    33        0 71234 1 0000000000000000 100 0 0 10 0";
    let read = parse_tcp(tcp).unwrap();
    assert_eq!((read.state, read.inode, read.uid), (TcpState::Listening, 71_234, 33));
    let six = "1: 0000000000000000FFFF00000100007F:0CEA 0000000000000000FFFF00000100007F:A1B2 01 00000000:00000000 03:00001755 00000000     0        0 71235 3 0000000000000000";
    assert_eq!(parse_tcp(&six.replace(" 01 ", " 06 ")), None, "closed");
    let read = parse_tcp(six).unwrap();
    if cfg!(target_endian = "little") {
        assert_eq!(
            (read.own, read.peer),
            ("127.0.0.1:3306".parse().unwrap(), "127.0.0.1:41394".parse().unwrap())
        );
    }
    assert_eq!((read.state, read.inode), (TcpState::Connected, 71_235));
    let unix = "0000000000000000: 00000002 00000000 00010000 0001 01 20231 /run/mysqld/mysqld.sock";
    let read = parse_unix(unix).unwrap();
    assert_eq!(
        (read.inode, read.listening, read.name.as_deref()),
        (20_231, true, Some("/run/mysqld/mysqld.sock"))
    );
    let datagram = "0000000000000000: 00000002 00000000 00000000 0002 01 20230 /dev/log";
    assert_eq!(parse_unix(datagram), None);
    assert_eq!(parse_unix("Num       RefCount Protocol Flags    Type St Inode Path"), None);
}

proptest! {
    // Any bytes: never a panic.
    #[test]
    fn anything_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "[0-9A-F: ./@x]{0,120}") {
        let _ = parse(&bytes, &mut vec![], &|message| match message {
            SockDiagMessage::UnixResponse(answer) => of_unix(&answer).map(|_| ()),
            SockDiagMessage::InetResponse(answer) => {
                of_inet(&answer);
                None
            }
            _ => None,
        });
        parse_tcp(&text);
        parse_unix(&text);
        parse_address(&text);
    }
}
