//! What counts as before, with pretended answers and clocks, and what a real connection gives.

use super::*;
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::net::TcpListener;

const ADDRESS: ([u8; 4], u16) = ([127, 0, 0, 1], 80);

fn probe(target: &str) -> SiteProbe {
    SiteProbe { host: "example.org".into(), target: target.into(), tls: false }
}

fn answer(status: u16, length_bytes: u64) -> Answer {
    Answer { status, length_bytes, certificate: None }
}

fn usual(answers: &[Answer]) -> Baseline {
    Baseline::of(&probe("/x"), answers).unwrap()
}

/// A site of which each question takes a second, and that answers by host, port and target.
struct Pretended<'a> {
    now: Cell<Duration>,
    asked: RefCell<Vec<String>>,
    answer: &'a dyn Fn(&str) -> io::Result<Answer>,
}

impl<'a> Pretended<'a> {
    fn new(answer: &'a dyn Fn(&str) -> io::Result<Answer>) -> Self {
        Self { now: Cell::default(), asked: RefCell::default(), answer }
    }

    fn client(&self) -> SiteClient<'_> {
        SiteClient {
            request: Box::new(|address, probe, at_most| {
                let text = format!("{}:{}{}", address.port(), probe.host, probe.target);
                let answer = (self.answer)(&text);
                let slow = answer.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut);
                self.now.set(self.now.get() + if slow { at_most } else { Duration::from_secs(1) });
                self.asked.borrow_mut().push(text);
                answer
            }),
            clock: Box::new(|| self.now.get()),
            pause: Box::new(|time| self.now.set(self.now.get() + time)),
        }
    }
}

#[test]
fn an_answer_is_as_before_by_status_and_length() {
    let seen = usual(&[answer(200, 5_120), answer(200, 5_000)]);
    for (now, expected) in [
        (answer(200, 5_050), None),
        (answer(200, 5_632), None),
        (answer(200, 4_488), None),
        (answer(200, 5_633), Some("200 with 5,633 bytes now")),
        (answer(200, 4_487), Some("200 with 4,487 bytes now")),
        (answer(500, 5_050), Some("500 with 5,050 bytes now")),
    ] {
        let expected =
            expected.map(|now| format!("GET /x answered 200 with 5,000 to 5,120 bytes before, and {now}"));
        assert_eq!(seen.difference(&Ok(now)), expected);
    }
    // What failed may succeed, and not fail otherwise.
    for (before, now, is_as_before) in [
        (vec![answer(503, 414)], answer(200, 5_000), true),
        (vec![answer(200, 5_000), answer(500, 600)], answer(200, 9_000), true),
        (vec![answer(503, 414)], answer(404, 414), false),
        (vec![answer(404, 414)], answer(200, 414), false),
    ] {
        assert_eq!(usual(&before).difference(&Ok(now)).is_none(), is_as_before, "{before:?} {now:?}");
    }
    let refused = Err(io::Error::from(io::ErrorKind::ConnectionRefused));
    assert_eq!(
        usual(&[answer(404, 196)]).difference(&refused).unwrap(),
        "GET /x answered 404 with 196 bytes before, and not at all now (connection refused)"
    );
    let both = usual(&[answer(200, 1_234_567), answer(503, 0)]);
    assert!(both.difference(&Ok(answer(503, 10))).is_none());
    assert!(
        both.difference(&Ok(answer(404, 10)))
            .unwrap()
            .contains("200 or 503 with 0 to 1,234,567 bytes before")
    );
    // What a query holds is nobody's business.
    let secret = Baseline::of(&probe("/x?token=hunter2"), &[answer(200, 1)]).unwrap();
    assert!(secret.difference(&Ok(answer(500, 1))).unwrap().starts_with("GET /x?.. answered 200 "));
}

proptest! {
    /// Whatever was seen is as before.
    #[test]
    fn what_was_seen_is_as_before(seen in prop::collection::vec((100_u16..600, any::<u64>()), 1..5)) {
        let seen: Vec<_> = seen.into_iter().map(|(status, length)| answer(status, length)).collect();
        let usual = usual(&seen);
        prop_assert!(seen.iter().all(|answer| usual.is(*answer)));
    }
}

#[test]
fn a_site_is_learnt_from_several_answers_and_compared() {
    let count = Cell::new(0_u64);
    let broken = Cell::new(false);
    let answers = |text: &str| match text {
        "80:example.org/" if broken.get() => Ok(answer(500, 530)),
        "80:example.org/" => {
            count.set(count.get() + 1);
            Ok(answer(200, 1000 + 100 * count.get()))
        }
        "80:example.org/none" => Ok(answer(404, 196)),
        _ => Err(io::ErrorKind::TimedOut.into()),
    };
    let pretended = Pretended::new(&answers);
    let addresses = [SocketAddr::from(([127, 0, 0, 1], 79)), SocketAddr::from(ADDRESS)];
    let probes = ["/", "/none", "/slow"].map(probe);
    let learnt = learn(&pretended.client(), &addresses[1..], &probes);
    assert_eq!(learnt.warnings, ["GET /slow was not answered before the change, so it is not compared"]);
    let site = learnt.site.unwrap();
    assert_eq!((site.usual[0].length_min_bytes, site.usual[0].length_max_bytes), (1100, 1300));
    assert_eq!(pretended.asked.borrow().iter().filter(|text| text.ends_with("/slow")).count(), 1);
    assert_eq!(site.answers_as_before(&pretended.client()), Ok(()));
    broken.set(true);
    let began = pretended.now.get();
    let error = site.answers_as_before(&pretended.client()).unwrap_err();
    assert_eq!(
        error.message,
        "GET / answered 200 with 1,100 to 1,300 bytes before, and 500 with 530 bytes now"
    );
    assert!(pretended.now.get() - began <= timeouts::SITE_CHECK);
    // Another address answers; where none does, nothing is known.
    assert!(learn(&pretended.client(), &addresses, &probes[..1]).site.is_some());
    let silent = learn(&pretended.client(), &addresses[..1], &probes);
    assert_eq!(silent.site, None);
    assert_eq!(
        silent.warnings,
        ["the site did not answer before the change, so its answers are not compared"]
    );
}

#[test]
fn a_failure_that_passes_is_none() {
    let count = Cell::new(0);
    let answers = |_: &str| {
        count.set(count.get() + 1);
        // The fourth and fifth answer fail: the first two after learning.
        Ok(if [4, 5].contains(&count.get()) { answer(503, 300) } else { answer(200, 10) })
    };
    let pretended = Pretended::new(&answers);
    let site = learn(&pretended.client(), &[SocketAddr::from(ADDRESS)], &[]).site.unwrap();
    assert_eq!(site.usual[0].probe, SiteProbe { host: "localhost".into(), target: "/".into(), tls: false });
    assert_eq!(site.answers_as_before(&pretended.client()), Ok(()));
    assert_eq!(count.get(), 6);
}

/// However many requests it is asked: a hanging site is to be as before soon.
#[test]
fn a_site_that_hangs_is_told_soon_and_one_slow_answer_is_none() {
    let (count, hangs_from, hangs_until) = (Cell::new(0), Cell::new(u32::MAX), Cell::new(u32::MAX));
    let answers = |_: &str| {
        count.set(count.get() + 1);
        match (hangs_from.get()..hangs_until.get()).contains(&count.get()) {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(answer(200, 10)),
        }
    };
    let pretended = Pretended::new(&answers);
    let probes = ["/a", "/b", "/c", "/d", "/e"].map(probe);
    let site = learn(&pretended.client(), &[SocketAddr::from(ADDRESS)], &probes).site.unwrap();
    hangs_from.set(count.get() + 1);
    hangs_until.set(count.get() + 2);
    assert_eq!(site.answers_as_before(&pretended.client()), Ok(()), "the second try was answered");
    hangs_from.set(count.get() + 1);
    hangs_until.set(u32::MAX);
    let began = pretended.now.get();
    let error = site.answers_as_before(&pretended.client()).unwrap_err();
    assert!(error.message.contains("GET /a answered 200 with 10 bytes before, and not at all"), "{error}");
    let took = pretended.now.get() - began;
    assert!(took <= timeouts::SITE_SILENCE + PAUSE * 2, "{took:?}");
}

#[test]
fn a_second_instance_may_be_told_the_port_of_the_original() {
    let answers = |text: &str| match text {
        "80:example.org/" | "5080:example.org:80/" => Ok(answer(301, 200)),
        "80:example.org/plain" | "5080:example.org/plain" => Ok(answer(200, 20)),
        _ => Ok(answer(404, 10)),
    };
    let pretended = Pretended::new(&answers);
    let site = |targets: &[&str]| {
        let probes: Vec<_> = targets.iter().map(|target| probe(target)).collect();
        learn(&pretended.client(), &[SocketAddr::from(ADDRESS)], &probes).site.unwrap()
    };
    assert_eq!(site(&["/", "/plain"]).is_answered_alike(&pretended.client(), 5080), Ok(()));
    let other = site(&["/plain"]).is_answered_alike(&pretended.client(), 5081).unwrap_err();
    assert_eq!(other.message, "GET /plain answered 200 with 20 bytes before, and 404 with 10 bytes now");
}

#[test]
fn ports_are_added_to_hosts_that_have_none() {
    for (host, expected) in [
        ("a", "a:80"),
        ("a:8080", "a:8080"),
        ("10.0.0.5", "10.0.0.5:80"),
        ("[::1]", "[::1]:80"),
        ("[::1]:81", "[::1]:81"),
    ] {
        assert_eq!(with_port(host, 80), expected);
    }
}

/// Answers one connection with some bytes; what it was asked comes back.
fn serve(answer: &'static [u8]) -> (SocketAddr, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = vec![];
        while !asked.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            asked.push(byte[0]);
        }
        stream.write_all(answer).unwrap();
        if answer.is_empty() {
            // Silent until the client is gone.
            let _ = stream.read(&mut [0]);
        }
        String::from_utf8(asked).unwrap()
    });
    (address, served)
}

#[test]
fn a_real_answer_is_read_to_its_end() {
    let (address, served) = serve(b"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n0123456789");
    assert_eq!(request(address, &probe("/a?b"), Duration::from_secs(5)).unwrap(), answer(302, 10));
    let asked = served.join().unwrap();
    assert!(asked.starts_with("GET /a?b HTTP/1.0\r\nHost: example.org\r\n"), "{asked}");
    let (address, served) = serve(b"SSH-2.0-x\r\n\r\n");
    assert_eq!(
        request(address, &probe("/"), Duration::from_secs(5)).unwrap_err().kind(),
        io::ErrorKind::InvalidData
    );
    served.join().unwrap();
    let (address, served) = serve(b"");
    assert_eq!(
        request(address, &probe("/"), Duration::from_millis(50)).unwrap_err().kind(),
        io::ErrorKind::TimedOut
    );
    served.join().unwrap();
    let header = request(address, &probe("/ HTTP/1.0\r\nX: y"), Duration::from_secs(1)).unwrap_err();
    assert_eq!(header.kind(), io::ErrorKind::InvalidInput);
}
