//! Which certificates of a server are trusted, and how it is reported that one is not.

use crate::secure::{Authority, Secure, responding};
use crate::server::{OK, load};
use crate::tls::tls_errors;
use webdyno_load::{prepare, probe};

fn long_ago(params: &mut rcgen::CertificateParams) {
    params.not_before = rcgen::date_time_ymd(2001, 1, 1);
    params.not_after = rcgen::date_time_ymd(2002, 1, 1);
}

#[test]
fn an_untrusted_certificate_is_reported_before_the_load() {
    let (authority, namesake) = (Authority::new(), Authority::new());
    let stranger = Authority::named("a stranger");
    let to_come =
        |params: &mut rcgen::CertificateParams| params.not_before = rcgen::date_time_ymd(4000, 1, 1);
    for (identity, cause, hint) in [
        (authority.identity(&["localhost"], long_ago), "its certificate has expired", "--insecure"),
        (authority.identity(&["localhost"], to_come), "its certificate is not valid yet", "date"),
        (
            authority.identity(&["a.example", "b.example"], |_| {}),
            "its certificate is for another name: a.example, b.example",
            "--connect-to",
        ),
        (authority.identity(&[], |_| {}), "has no subject alternative name", "subjectAltName"),
        (stranger.identity(&["localhost"], |_| {}), "signed by an unknown authority", "--cacert"),
        (namesake.identity(&["localhost"], |_| {}), "signed by another key than that of", "--cacert"),
        (authority.self_signed(), "is one of an authority, and signed by itself", "--cacert"),
    ] {
        let server = Secure::start(authority.server(&identity), responding(OK.to_vec()));
        let mut load_of = server.load_of(&authority, 10);
        let told = probe(&mut prepare(&load_of).unwrap()).unwrap_err();
        assert!(
            told.message.contains(" is not trusted: its certificate ") && told.message.contains(cause),
            "{told}"
        );
        assert!(told.message.contains("localhost") && told.exit_code() == 1, "{told}");
        assert!(told.hint.as_ref().unwrap().contains(hint), "{told}");
        let outcome = load(&load_of);
        assert_eq!((tls_errors(&outcome), outcome.failed()), (10, 10), "{cause}");
        load_of.transport.tls.ca_file = None;
        load_of.transport.tls.insecure = true;
        assert_eq!(probe(&mut prepare(&load_of).unwrap()).unwrap().status, Some(200), "{cause}");
        assert_eq!(load(&load_of).completed(), 10, "{cause}");
    }
}

#[test]
fn a_certificate_that_signed_itself_can_be_trusted_by_name() {
    let authority = Authority::new();
    let identity = authority.self_signed();
    let server = Secure::start(authority.server(&identity), responding(OK.to_vec()));
    let mut load_of = server.load_of(&authority, 10);
    load_of.transport.tls.ca_file = Some(identity.certificate_file.clone());
    assert_eq!(load(&load_of).completed(), 10);
    // Its name still counts.
    load_of.requests[0].url = format!("https://127.0.0.1:{}/", server.address.port());
    let told = probe(&mut prepare(&load_of).unwrap()).unwrap_err();
    assert!(told.message.contains("its certificate is for another name: localhost"), "{told}");
}

// As curl has it: the file names the very certificate that is meant, and not who has signed it.
#[test]
fn a_certificate_that_was_signed_can_be_trusted_by_itself() {
    let authority = Authority::new();
    let meant = authority.identity(&["localhost"], |_| {});
    let another = authority.identity(&["localhost", "another.example"], |_| {});
    let elsewhere = authority.identity(&["elsewhere.example"], |_| {});
    let old = authority.identity(&["localhost", "old.example"], long_ago);
    for (identity, trusted, cause) in [
        (&meant, &meant, None),
        (&another, &meant, Some("signed by an unknown authority")),
        (&elsewhere, &elsewhere, Some("its certificate is for another name: elsewhere.example")),
        (&old, &old, Some("its certificate has expired")),
    ] {
        let server = Secure::start(authority.server(identity), responding(OK.to_vec()));
        let mut load_of = server.load_of(&authority, 10);
        load_of.transport.tls.ca_file = Some(trusted.certificate_file.clone());
        let outcome = load(&load_of);
        match (probe(&mut prepare(&load_of).unwrap()), cause) {
            (Ok(seen), None) => assert_eq!((seen.status, outcome.completed()), (Some(200), 10)),
            (Err(told), Some(cause)) => {
                assert!(told.message.contains(cause), "{told}");
                assert_eq!(tls_errors(&outcome), 10, "{cause}");
            }
            (seen, cause) => panic!("{seen:?} instead of {cause:?}"),
        }
    }
}
