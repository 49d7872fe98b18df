//! `samite doctor`: passes on this host, and finds faults made on purpose.

use serde_json::Value;

use crate::samite;

fn examine(variables: &[(&str, &str)], arguments: &str) -> (Option<i32>, Value) {
    let mut doctor = samite(&format!("doctor --json {arguments}"));
    let output = doctor.envs(variables.iter().copied()).output().unwrap();
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
}

fn check<'a>(answer: &'a Value, name: &str) -> &'a Value {
    let checks = answer["checks"].as_array().unwrap();
    checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("no {name} in {answer:#}"))
}

#[test]
fn a_sound_host_passes() {
    let (code, answer) = examine(&[], "");
    assert_eq!(code, Some(0), "{answer:#}");
    for name in ["launcher", "variables", "libfabric", "loopback", "self-test of samite-shm"] {
        assert_eq!(check(&answer, name)["verdict"], "pass", "{answer:#}");
    }
    for check in answer["checks"].as_array().unwrap() {
        assert_eq!(check["verdict"] == "pass", check.get("fix").is_none(), "{check:#}");
    }
}

#[test]
fn what_is_wrong_fails_with_the_fix() {
    for (variables, name, verdict, part) in [
        (&[("OMPI_COMM_WORLD_SIZE", "2")][..], "launcher", "fail", "Open MPI"),
        (&[("SAMITE_EAGER_MAX", "much")], "variables", "fail", "SAMITE_EAGER_MAX is `much`"),
        (&[("SAMITE_EAGERMAX", "1")], "variables", "warn", "SAMITE_EAGERMAX"),
        (&[("SAMITE_TRANSPORT", "verbs")], "providers", "fail", "`verbs`"),
        (&[("SAMITE_TRANSPORT", "verbs")], "self-test of verbs", "fail", "no provider `verbs`"),
        (&[("FI_PROVIDER", "sockets")], "providers", "warn", "tcp;ofi_rxm"),
        (&[("FI_AV_REMOVE_CLEANUP", "0")], "libfabric", "warn", "connections of dead peers"),
    ] {
        let (code, answer) = examine(variables, "");
        let found = check(&answer, name);
        assert_eq!(found["verdict"], verdict, "{answer:#}");
        assert!(found["found"].as_str().unwrap().contains(part), "{found:#}");
        assert!(found["fix"].as_str().is_some_and(|fix| !fix.is_empty()), "{found:#}");
        assert_eq!(code, Some((verdict == "fail").into()), "{answer:#}");
    }
}

#[test]
fn too_many_ranks_are_reported() {
    let (_, answer) = examine(&[], "-n 4000");
    assert_eq!(check(&answer, "processors")["verdict"], "warn", "{answer:#}");
}
