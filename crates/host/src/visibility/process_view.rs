//! What a process sees: its files, its unix sockets, its network. A service in a container names paths and addresses as
//! they are in there.
//!
//! Facts: proc_pid_root(5): `/proc/PID/root` leads into the mount namespace of a process. An absolute symbolic link in
//! there would lead out again, so files are opened by openat2(2) with RESOLVE_IN_ROOT (since Linux 5.6), and before that
//! by a path of which [`mount_namespace::in_root`] has resolved each link. openat2 refuses what open(2) ignores: flags beside O_PATH.
//! network_namespaces(7): a socket belongs to the namespace that it was made in, whoever uses it later. unix(7): a path
//! of at most 107 bytes can be connected to; `/proc/self/fd/N` of a socket that is open as a path is short.

use crate::os::procfs;
use crate::os::wildcard::{is_pattern, matches};
use crate::visibility::{mount_namespace, network_namespace};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Most files that one pattern may stand for.
const MATCHES_MAX: usize = 10_000;

/// The files of a process.
#[derive(Debug)]
pub struct Root {
    /// Its root directory; `None` when that is ours.
    directory: Option<OwnedFd>,
}

impl Root {
    /// Our own files.
    pub const fn ours() -> Self {
        Self { directory: None }
    }

    /// Those that a process sees. Ours, when it is not to be seen which ones these are.
    pub fn of(pid: u32) -> Self {
        let link = |pid: &str, name: &str| std::fs::read_link(format!("/proc/{pid}/{name}")).ok();
        let (other, own) = (pid.to_string(), "self");
        let same = ["ns/mnt", "root"].iter().all(|name| match (link(&other, name), link(own, name)) {
            (Some(theirs), Some(ours)) => theirs == ours,
            _ => true,
        });
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = || rustix::fs::open(format!("/proc/{pid}/root"), flags, Mode::empty()).ok();
        Self { directory: if same { None } else { opened() } }
    }

    /// Those below a directory.
    #[cfg(test)]
    pub fn at(directory: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { directory: Some(rustix::fs::open(directory, flags, Mode::empty())?) })
    }

    /// Whether these are our own files.
    pub fn is_ours(&self) -> bool {
        self.directory.is_none()
    }

    /// Opens an absolute path.
    pub fn open(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let without_waiting =
            if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NONBLOCK | OFlags::NOCTTY };
        let flags = flags | OFlags::CLOEXEC | without_waiting;
        let opened = match &self.directory {
            None => rustix::fs::open(path, flags, Mode::empty()),
            Some(root) => {
                match rustix::fs::openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
                    // An older kernel, or a sandbox that does not know the call.
                    Err(Errno::NOSYS | Errno::PERM) => {
                        rustix::fs::open(self.resolved(path), flags | OFlags::NOFOLLOW, Mode::empty())
                    }
                    opened => opened,
                }
            }
        };
        Ok(opened?)
    }

    /// Where we see a path now, every link on the way resolved among the files of the process.
    fn resolved(&self, path: &str) -> PathBuf {
        match &self.directory {
            None => PathBuf::from(path),
            Some(root) => {
                let begin = PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd()));
                mount_namespace::in_root(&begin, Path::new(path))
            }
        }
    }

    /// Reads a regular file up to its bound.
    pub fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let file = File::from(self.open(path, OFlags::RDONLY)?);
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        if found.len() > FILE_BYTES_MAX {
            return Err(io::Error::other(format!("longer than {FILE_BYTES_MAX} bytes")));
        }
        let mut bytes = vec![];
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads a file as text; bytes that are not UTF-8 become U+FFFD.
    pub fn read_text(&self, path: &str) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&self.read(path)?).into_owned())
    }

    /// A path by which we reach a file of the process as long as this lives; for what takes only paths.
    pub fn path(&self, path: &str) -> String {
        self.resolved(path).to_string_lossy().into_owned()
    }

    /// The paths behind an absolute pattern, sorted, as glob(7) finds them. An error when a directory cannot be read; a
    /// pattern without wildcards is itself.
    pub fn glob(&self, pattern: &str) -> io::Result<Vec<String>> {
        if !is_pattern(pattern) {
            return Ok(vec![pattern.to_owned()]);
        }
        let mut found = vec![String::new()];
        for part in pattern.split('/').filter(|part| !part.is_empty()) {
            let mut next = vec![];
            for folder in found {
                if is_pattern(part) {
                    next.extend(self.entries(&folder, part)?);
                } else {
                    next.push(format!("{folder}/{part}"));
                }
            }
            next.truncate(MATCHES_MAX);
            found = next;
        }
        // What stands behind a wildcard need not be there.
        let is_there = |path: &String| self.open(path, OFlags::PATH).is_ok();
        found.retain(is_there);
        Ok(found)
    }

    fn entries(&self, folder: &str, part: &str) -> io::Result<Vec<String>> {
        let path = if folder.is_empty() { "/" } else { folder };
        let directory = match self.open(path, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(directory) => directory,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(vec![]);
            }
            Err(error) => return Err(error),
        };
        let mut names = vec![];
        for entry in rustix::fs::Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." && matches(part, &name) && entry.file_type() != FileType::Fifo {
                names.push(format!("{folder}/{name}"));
            }
        }
        names.sort();
        Ok(names)
    }
}

/// Runs something in the network of a process: at once when that is ours.
pub fn in_network_of<T>(pid: u32, look: impl FnOnce() -> T) -> io::Result<T> {
    let ours = procfs::net_namespace(std::process::id()).ok();
    match procfs::net_namespace(pid).ok() {
        Some(theirs) if Some(&theirs) != ours.as_ref() => network_namespace::within(pid, look),
        _ => Ok(look()),
    }
}

/// Connects to an address of a process (`127.0.0.1:9000`, `unix:/run/x.sock`) as the process would. The stream does not
/// block.
///
/// Of a unix socket `WouldBlock` is the error when its accept queue is full (unix(7), EAGAIN).
pub fn connect(pid: u32, root: &Root, address: &str, timeout: Duration) -> io::Result<Stream> {
    match address.strip_prefix("unix:") {
        Some(path) => connect_unix(root, path).map(Stream::Unix),
        None => {
            let address = reachable(address)
                .ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "not an address and port"))?;
            let stream = in_network_of(pid, || TcpStream::connect_timeout(&address, timeout))??;
            stream.set_nonblocking(true)?;
            Ok(Stream::Tcp(stream))
        }
    }
}

/// The address to connect to for one that is listened on: of all addresses the loopback one.
pub fn reachable(address: &str) -> Option<SocketAddr> {
    let address = address.replace("localhost:", "127.0.0.1:");
    let mut address: SocketAddr = address.parse().ok()?;
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    Some(address)
}

fn connect_unix(root: &Root, path: &str) -> io::Result<UnixStream> {
    let place = SocketPlace::of(root, path)?;
    let address = SocketAddrUnix::new(place.path())?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &address)?;
    Ok(UnixStream::from(socket))
}

/// A unix socket of a process, held by a short path that leads to it and to nothing else.
#[derive(Debug)]
pub struct SocketPlace(OwnedFd);

impl SocketPlace {
    /// Finds a socket by its absolute path.
    pub fn of(root: &Root, path: &str) -> io::Result<Self> {
        if !path.starts_with('/') {
            return Err(io::Error::new(ErrorKind::InvalidInput, "not an absolute path"));
        }
        root.open(path, OFlags::PATH).map(Self)
    }

    /// The path to connect to as long as this lives.
    pub fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }
}

/// A connection that does not block.
#[derive(Debug)]
pub enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a unix socket.
    Unix(UnixStream),
}

impl io::Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl io::Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl std::os::fd::AsFd for Stream {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Stream {
    /// Waits until there is something to read; false when the time is up before.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        wait_for_any([self].into_iter(), timeout)
    }
}

/// Waits until there is something to read from any of these; false when the time is up before.
pub fn wait_for_any<'a>(streams: impl Iterator<Item = &'a Stream>, timeout: Duration) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let timeout = Timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let mut waiting: Vec<_> = streams.map(|stream| PollFd::new(stream, PollFlags::IN)).collect();
    match poll(&mut waiting, Some(&timeout)) {
        Ok(count) => Ok(count > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn patterns_stand_for_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        for name in ["b/x.conf", "a/x.conf", "a/y.conf", "c/z"] {
            let path = std::path::PathBuf::from(at(name));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        for (pattern, expected) in [
            ("a/*.conf", vec!["a/x.conf", "a/y.conf"]),
            ("*/x.conf", vec!["a/x.conf", "b/x.conf"]),
            ("none/*", vec![]),
            ("none", vec!["none"]),
        ] {
            let expected: Vec<_> = expected.into_iter().map(at).collect();
            assert_eq!(Root::ours().glob(&at(pattern)).unwrap(), expected, "{pattern}");
        }
        assert_eq!(Root::ours().read_text(&at("c/z")).unwrap(), "x");
        assert_eq!(Root::ours().read("/dev/null").unwrap_err().to_string(), "not a regular file");
        assert!(Root::of(std::process::id()).is_ours());
    }

    // As of a service in a container: a root that is not ours.
    #[test]
    fn sockets_and_patterns_are_found_below_another_root() {
        let folder = tempfile::tempdir().unwrap();
        let _listener = UnixListener::bind(folder.path().join("s")).unwrap();
        let directory =
            rustix::fs::open(folder.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let root = Root { directory: Some(directory) };
        assert_eq!(root.glob("/*").unwrap(), ["/s"]);
        connect(std::process::id(), &root, "unix:/s", Duration::from_secs(1)).unwrap();
    }

    #[test]
    fn a_long_path_can_be_connected_to() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("d".repeat(100));
        std::fs::create_dir(&deep).unwrap();
        let short = folder.path().join("s");
        let _listener = UnixListener::bind(&short).unwrap();
        std::fs::rename(&short, deep.join("s")).unwrap();
        let address = format!("unix:{}", deep.join("s").display());
        let connect =
            |address: &str| connect(std::process::id(), &Root::ours(), address, Duration::from_secs(1));
        assert!(connect(&address).is_ok());
        assert_eq!(connect("unix:/no/such/socket").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(connect("unix:relative").unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(connect("nonsense").unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    // What a container has is found there, by every way, and what it links to is what it has itself.
    #[test]
    fn files_of_another_root_are_reached_inside() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("etc/conf.d")).unwrap();
        std::fs::create_dir_all(at("run")).unwrap();
        std::fs::write(at("etc/hostname"), "theirs").unwrap();
        std::fs::write(at("etc/conf.d/a.conf"), "x").unwrap();
        std::os::unix::fs::symlink("/etc/hostname", at("name")).unwrap();
        std::os::unix::fs::symlink("/run/s", at("link")).unwrap();
        let _listener = UnixListener::bind(at("run/s")).unwrap();
        let root = Root::at(folder.path()).unwrap();
        assert_eq!(root.read_text("/name").unwrap(), "theirs");
        assert_eq!(std::fs::read_to_string(root.path("/name")).unwrap(), "theirs");
        assert_eq!(root.glob("/etc/*.d/*.conf").unwrap(), ["/etc/conf.d/a.conf"]);
        for address in ["unix:/run/s", "unix:/link"] {
            let connected = connect(std::process::id(), &root, address, Duration::from_secs(1));
            assert!(connected.is_ok(), "{address}: {connected:?}");
        }
    }

    #[test]
    fn an_address_of_all_is_reached_by_loopback() {
        for (address, expected) in [
            ("0.0.0.0:9000", Some("127.0.0.1:9000")),
            ("[::]:9000", Some("[::1]:9000")),
            ("10.1.2.3:9", Some("10.1.2.3:9")),
            ("localhost:9", Some("127.0.0.1:9")),
            ("example.org:9", None),
        ] {
            assert_eq!(reachable(address), expected.map(|text| text.parse().unwrap()), "{address}");
        }
    }
}
