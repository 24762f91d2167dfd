//! Names looked up while the load runs, on threads of their own: getaddrinfo(3) blocks, an event loop must not.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Look-ups of one engine thread at once. A name server that is silent holds each for seconds.
const THREADS: usize = 4;

/// A look-up for a connection.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) slot: u32,
    /// Names the connection in its slot.
    pub(crate) token: u64,
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
    /// The address that the probe found good: it is taken when it is among the answers, else one of its family.
    pub(crate) preferred: SocketAddr,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) slot: u32,
    pub(crate) token: u64,
    /// `None` when the name does not resolve.
    pub(crate) address: Option<SocketAddr>,
}

/// Threads that look names up. They end when this is dropped, each after the look-up that it is in.
#[derive(Debug)]
pub(crate) struct Resolver {
    questions: Sender<Question>,
    answers: Receiver<Answer>,
}

impl Resolver {
    /// Starts the threads; what is given back becomes readable with each answer.
    pub(crate) fn start() -> std::io::Result<(Self, OwnedFd)> {
        Self::start_with(look_up)
    }

    fn start_with(look_up: fn(&str, u16) -> Vec<SocketAddr>) -> std::io::Result<(Self, OwnedFd)> {
        let signal = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (questions, asked) = channel::<Question>();
        let (told, answers) = channel();
        let asked = Arc::new(Mutex::new(asked));
        for number in 1..=THREADS {
            let (asked, told, signal) = (asked.clone(), told.clone(), signal.try_clone()?);
            let work = move || {
                loop {
                    let next = asked.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(Question { slot, token, host, port, preferred }) = next else { return };
                    let address = choose(&look_up(&host, port), preferred);
                    if told.send(Answer { slot, token, address }).is_err() {
                        return;
                    }
                    // Full is as good: it is readable then.
                    let _ = rustix::io::write(&signal, &1u64.to_ne_bytes());
                }
            };
            thread::Builder::new().name(format!("resolver-{number}")).spawn(work)?;
        }
        Ok((Self { questions, answers }, signal))
    }

    /// Asks; the answer comes later.
    pub(crate) fn ask(&self, question: Question) {
        // The threads live as long as this does.
        let _ = self.questions.send(question);
    }

    /// The next answer that has come.
    pub(crate) fn answer(&self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }
}

fn look_up(host: &str, port: u16) -> Vec<SocketAddr> {
    (host, port).to_socket_addrs().map(Iterator::collect).unwrap_or_default()
}

/// Which of the answers is used.
fn choose(addresses: &[SocketAddr], preferred: SocketAddr) -> Option<SocketAddr> {
    let same = addresses.iter().find(|address| **address == preferred);
    let family = || addresses.iter().find(|address| address.is_ipv4() == preferred.is_ipv4());
    same.or_else(family).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_address_that_was_found_good_is_preferred() {
        let good = address("127.0.0.2:80");
        for (answers, chosen) in [
            (&["[::1]:80", "127.0.0.1:80", "127.0.0.2:80"][..], Some("127.0.0.2:80")),
            (&["[::1]:80", "127.0.0.1:80"], Some("127.0.0.1:80")),
            (&["[::1]:80"], None),
            (&[], None),
        ] {
            let answers: Vec<_> = answers.iter().map(|text| address(text)).collect();
            assert_eq!(choose(&answers, good), chosen.map(address), "{answers:?}");
        }
    }

    #[test]
    fn answers_come_with_a_signal_and_names_may_be_gone() {
        let (resolver, signal) = Resolver::start_with(|host, port| match host {
            "there" => vec![SocketAddr::from(([127, 0, 0, 1], port))],
            _ => vec![],
        })
        .unwrap();
        let ask = |slot, host: &str| {
            let (host, preferred) = (host.into(), address("127.0.0.1:7"));
            resolver.ask(Question { slot, token: u64::from(slot) + 100, host, port: 7, preferred });
        };
        ask(1, "there");
        ask(2, "gone");
        let mut answers = vec![];
        while answers.len() < 2 {
            let mut waiting = [PollFd::new(&signal, PollFlags::IN)];
            let timeout = Timespec { tv_sec: 20, tv_nsec: 0 };
            assert_eq!(poll(&mut waiting, Some(&timeout)), Ok(1), "{answers:?}");
            answers.extend(resolver.answer());
        }
        answers.sort_by_key(|answer| answer.slot);
        let expected = [(1, 101, Some(address("127.0.0.1:7"))), (2, 102, None)];
        assert_eq!(answers, expected.map(|(slot, token, address)| Answer { slot, token, address }));
    }
}
