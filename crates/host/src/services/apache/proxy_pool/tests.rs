//! Which lines get another `max`, and which are left to a person.

use super::*;
use crate::services::apache::config::{Input, evaluate};
use webdyno_model::setting::SettingId;

const APP: &str = "127.0.0.1:8000";

/// The configuration of a file after a change of a backend's connections to 26 for each process of 64 threads.
fn changed(text: &str, name: &str, mpm: Mpm) -> std::result::Result<String, Obstacle> {
    let folder = tempfile::tempdir().unwrap();
    let main_file = folder.path().canonicalize().unwrap().join("httpd.conf");
    std::fs::write(&main_file, text).unwrap();
    let with = |overlay| {
        Ok(evaluate(Input {
            main_file: main_file.clone(),
            server_root: folder.path().into(),
            overlay,
            ..Input::default()
        }))
    };
    let setting = SettingId::of_service("apache", name).of_pool(APP);
    let change = SettingChange { setting, to: SettingValue::Integer(26) };
    let evaluation = with(BTreeMap::new()).unwrap();
    let mut plan = plan(&evaluation, Process { mpm, threads: 64 }, with, &[change])?;
    assert_eq!((plan.class, plan.files.len(), plan.changes.len()), (ApplyClass::Reload, 1, 1));
    assert_eq!(plan.files[0].path, main_file.to_string_lossy());
    assert!(plan.changes[0].from.is_some());
    Ok(plan.files.remove(0).after)
}

#[test]
fn only_the_value_of_the_line_that_is_meant_changes() {
    for (name, before, after) in [
        (
            "ProxyPass max",
            "ProxyPass /o http://127.0.0.1:8000/o   max=2  retry=0 # no comment\n",
            "ProxyPass /o http://127.0.0.1:8000/o   max=26  retry=0 # no comment\n",
        ),
        (
            "ProxyPass max",
            "# ProxyPass / http://127.0.0.1:8000/ max=2\r\n<VirtualHost *:80>\r\n\tproxypass / http://127.0.0.1:8000/ \\\r\n\
             \t\tsmax=2 \"MAX=2\" \\\r\n\tttl=2\r\n</VirtualHost>\r\nTimeout 2",
            "# ProxyPass / http://127.0.0.1:8000/ max=2\r\n<VirtualHost *:80>\r\n\tproxypass / http://127.0.0.1:8000/ \\\r\n\
             \t\tsmax=2 \"MAX=26\" \\\r\n\tttl=2\r\n</VirtualHost>\r\nTimeout 2",
        ),
        (
            "BalancerMember max",
            "<Proxy balancer://a>\nBalancerMember http://127.0.0.1:8000 max=4 route=a\nBalancerMember http://127.0.0.1:8001 max=4\n\
             </Proxy>\nProxyPass / balancer://a/\n",
            "<Proxy balancer://a>\nBalancerMember http://127.0.0.1:8000 max=26 route=a\nBalancerMember http://127.0.0.1:8001 max=4\n\
             </Proxy>\nProxyPass / balancer://a/\n",
        ),
        // Variables elsewhere in the line stay what they are.
        (
            "ProxyPass max",
            "Define HOST 127.0.0.1\nProxyPass / http://${HOST}:8000/ max=2\n",
            "Define HOST 127.0.0.1\nProxyPass / http://${HOST}:8000/ max=26\n",
        ),
        (
            "ProxyPassMatch max",
            "ProxyPassMatch ^/o http://127.0.0.1:8000 max=1",
            "ProxyPassMatch ^/o http://127.0.0.1:8000 max=26",
        ),
    ] {
        assert_eq!(changed(before, name, Mpm::Event).as_deref(), Ok(after));
        assert!(
            changed(after, name, Mpm::Event).unwrap_err().0.contains("every setting already has the value")
        );
    }
}

#[test]
fn what_is_not_one_plain_line_is_left_to_a_person() {
    let line = "ProxyPass / http://127.0.0.1:8000/ max=2\n";
    for (text, mpm, part) in [
        (line.to_owned(), Mpm::Prefork, "under prefork each process has one connection"),
        (
            "ProxyPass / http://127.0.0.1:8000/ smax=2\n".into(),
            Mpm::Event,
            "no ProxyPass of Apache has a max= for 127.0.0.1:8000",
        ),
        (
            "ProxyPass / http://127.0.0.1:8001/ max=2\n".into(),
            Mpm::Event,
            "no ProxyPass of Apache has a max=",
        ),
        (
            format!("{line}<Location /a>\nProxyPass http://127.0.0.1:8000/a max=2\n</Location>\n"),
            Mpm::Event,
            "httpd.conf:1, ",
        ),
        (
            format!("{line}<Proxy http://127.0.0.1:8000/>\nProxySet max=9\n</Proxy>\n"),
            Mpm::Event,
            "stands in several places",
        ),
        (
            "Define M 2\nProxyPass / http://127.0.0.1:8000/ max=${M}\n".into(),
            Mpm::Event,
            "in one piece: a variable",
        ),
        ("ProxyPass / http://127.0.0.1:8000/ max=1\\\n2\n".into(), Mpm::Event, "in one piece"),
        ("ProxyPass / http://127.0.0.1:8000/ max=1 max=2\n".into(), Mpm::Event, "in one piece"),
        (
            format!("LoadModule macro_module m/mod_macro.so\n<Macro app>\n{line}</Macro>\nUse app\n"),
            Mpm::Worker,
            "ProxyPass max=2 stands in a macro",
        ),
        (
            "BalancerMember http://127.0.0.1:8000 max=2\n".into(),
            Mpm::Event,
            "is a parameter of BalancerMember, and not of ProxyPass",
        ),
    ] {
        let (why, hint) = changed(&text, "ProxyPass max", mpm).unwrap_err();
        assert!(why.contains(part), "{why}");
        assert_eq!(hint.is_some(), !why.contains("no ProxyPass of Apache"), "{why}");
    }
    let persists = "BalancerPersist On\nBalancerMember http://127.0.0.1:8000 max=2\n";
    assert!(
        changed(persists, "BalancerMember max", Mpm::Event).unwrap_err().0.contains("keeps the parameters")
    );
    let more = SettingChange {
        setting: SettingId::of_service("apache", "ProxyPass max").of_pool(APP),
        to: SettingValue::Integer(65),
    };
    let process = Process { mpm: Mpm::Event, threads: 64 };
    assert!(allowed(process, &more).unwrap_err().0.contains("a process of 64 threads takes no max=65"));
}
