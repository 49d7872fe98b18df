//! Libfabric, its providers, network interfaces, and the resolution of names.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use super::{Finding, is_libfabric_needed};

/// Returns the findings and the usable providers.
pub(super) fn all(asked: Option<&str>) -> (Vec<Finding>, Vec<String>) {
    let (mut findings, providers) = libfabric(asked);
    // Start this lookup, which makes a thread, only now: libfabric must be set up before there is a second thread.
    let name = ask_for_name();
    findings.extend([loopback(asked), names(name)]);
    (findings, providers)
}

#[cfg(feature = "ofi")]
fn libfabric(asked: Option<&str>) -> (Vec<Finding>, Vec<String>) {
    use samite_fabric::ofi::survey;

    let fails = |check: &str, error: samite_fabric::PortError| match is_libfabric_needed(asked) {
        true => Finding::fail(check, error.to_string(), "or use samite-shm, which does without, on one host"),
        false => Finding::warn(check, error.to_string(), "needed between hosts only"),
    };
    let library = match survey::library() {
        Ok(library) => library,
        Err(error) => return (vec![fails("libfabric", error)], Vec::new()),
    };
    let mut findings = vec![if library.closes_connections {
        Finding::pass(
            "libfabric",
            format!("version {}, closes the connections of dead peers", library.version),
        )
    } else {
        Finding::warn(
            "libfabric",
            format!("version {}, keeps the connections of dead peers", library.version),
            "unset FI_AV_REMOVE_CLEANUP, or set it to 1: else memory of a dead peer's messages is held to the end",
        )
    }];
    if !library.calibrating.is_empty() {
        findings.push(start(&library.calibrating, is_libfabric_needed(asked)));
    }
    let found = match survey::survey() {
        Ok(found) => found,
        Err(error) => {
            findings.push(fails("providers", error));
            return (findings, Vec::new());
        }
    };
    let mut providers: Vec<String> = Vec::new();
    let mut addresses: Vec<String> = Vec::new();
    for entry in found.iter().filter(|entry| entry.caps.is_ok()) {
        if !providers.contains(&entry.provider) {
            providers.push(entry.provider.clone());
        }
        let address = entry.address.as_ref().map(|address| format!("{} {address}", entry.interface));
        addresses.extend(address.filter(|address| !addresses.contains(address)));
    }
    let list = providers.join(", ");
    let wanted = asked.filter(|_| is_libfabric_needed(asked)).unwrap_or(samite_fabric::ofi::choice::DEFAULT);
    findings.push(if providers.iter().any(|provider| provider == wanted) {
        Finding::pass("providers", list)
    } else {
        let chosen = format!("`{wanted}` is not among those of libfabric here: {list}");
        let fix = "choose another with SAMITE_TRANSPORT, or let FI_PROVIDER, if set, not exclude it";
        match is_libfabric_needed(asked) {
            true => Finding::fail("providers", chosen, fix),
            false => Finding::warn("providers", chosen, format!("{fix}; needed between hosts only")),
        }
    });
    findings.push(interfaces(&addresses));
    (findings, providers)
}

/// Reports the time that libfabric takes at the start of each process, as a warning if all messages need libfabric.
#[cfg(feature = "ofi")]
fn start(calibrating: &[&str], is_needed: bool) -> Finding {
    const CHECK: &str = "start of libfabric";
    let found = format!(
        "each process that uses it waits {} ms, since {} calibrate{} a clock; not in one built without psm and psm2",
        100 * calibrating.len(),
        calibrating.join(" and "),
        if calibrating.len() == 1 { "s" } else { "" },
    );
    let fix = "if the hosts have no Omni-Path or TrueScale network, name such a libfabric in LD_LIBRARY_PATH";
    if is_needed { Finding::warn(CHECK, found, fix) } else { Finding::pass(CHECK, found) }
}

#[cfg(not(feature = "ofi"))]
fn libfabric(_: Option<&str>) -> (Vec<Finding>, Vec<String>) {
    let fix = "build with the feature `ofi` for jobs on several hosts";
    (vec![Finding::warn("libfabric", "not built in", fix)], Vec::new())
}

/// Judges this host's addresses. Each text is the name of an interface, a space, and an address.
#[cfg(feature = "ofi")]
fn interfaces(addresses: &[String]) -> Finding {
    let list = addresses.join(", ");
    let parsed = addresses.iter().filter_map(|address| address.rsplit(' ').next()?.parse().ok());
    let outside = |address: &std::net::IpAddr| !address.is_loopback();
    match parsed.filter(outside).count() {
        0 if addresses.is_empty() => Finding::warn(
            "interfaces",
            "no provider has one with an IP address",
            "bring one up for jobs on several hosts (`ip link set DEVICE up`)",
        ),
        0 => Finding::warn(
            "interfaces",
            format!("only loopback: {list}"),
            "bring up another for jobs on several hosts (`ip link set DEVICE up`)",
        ),
        _ => Finding::pass("interfaces", list),
    }
}

/// Checks that TCP works over the loopback interface.
fn loopback(asked: Option<&str>) -> Finding {
    let carries = |listener: io::Result<TcpListener>| {
        let listener = listener?;
        let mut there = TcpStream::connect_timeout(&listener.local_addr()?, LOOPBACK_WITHIN)?;
        let mut here = listener.accept()?.0;
        there.write_all(&[7])?;
        here.set_read_timeout(Some(LOOPBACK_WITHIN))?;
        here.read_exact(&mut [0])
    };
    let v4 = carries(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    if let Err(error) = v4 {
        let found = format!("127.0.0.1 does not carry TCP: {error}");
        let fix = "bring it up with `ip link set lo up`, and check that no firewall drops its traffic";
        return match is_libfabric_needed(asked) {
            true => Finding::fail(LOOPBACK, found, fix),
            false => Finding::warn(LOOPBACK, format!("{found}; samite-shm does without"), fix),
        };
    }
    match carries(TcpListener::bind((Ipv6Addr::LOCALHOST, 0))) {
        Ok(()) => Finding::pass(LOOPBACK, "127.0.0.1 and ::1 carry TCP"),
        Err(error) => Finding::pass(LOOPBACK, format!("127.0.0.1 carries TCP, ::1 does not ({error})")),
    }
}

/// The name of the check of 127.0.0.1.
pub(super) const LOOPBACK: &str = "loopback";

/// The time-out of a connection or a read over loopback. The kernel answers at once or not at all.
const LOOPBACK_WITHIN: Duration = Duration::from_millis(500);

/// This host's name, and a channel from which the addresses of that name can be received. `None` if the name cannot be
/// read.
type Name = Option<(String, Receiver<io::Result<Vec<String>>>)>;

/// Starts a thread that looks up this host's name. A lookup can be slow, so other checks run meanwhile.
fn ask_for_name() -> Name {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?.trim().to_owned();
    let (teller, told) = mpsc::channel();
    let asked = name.clone();
    #[expect(clippy::disallowed_methods, reason = "a resolver that hangs must not hang us")]
    std::thread::spawn(move || {
        let addresses = (asked.as_str(), 0).to_socket_addrs();
        let _ = teller.send(addresses.map(|all| all.map(|one| one.ip().to_string()).collect()));
    });
    Some((name, told))
}

/// Checks that this host's own name has addresses and resolves quickly.
fn names(name: Name) -> Finding {
    const CHECK: &str = "name resolution";
    const FIX: &str =
        "give it an address in /etc/hosts or DNS, or use addresses with `samite run --hosts` and `--address`";
    let Some((name, told)) = name else {
        return Finding::warn(CHECK, "this host's name cannot be read from /proc/sys", FIX);
    };
    match told.recv_timeout(Duration::from_secs(1)) {
        Ok(Ok(mut addresses)) if !addresses.is_empty() => {
            addresses.dedup();
            Finding::pass(CHECK, format!("{name} is {}", addresses.join(", ")))
        }
        Ok(Ok(_)) => Finding::warn(CHECK, format!("{name}, this host's name, has no address"), FIX),
        Ok(Err(error)) => {
            Finding::warn(CHECK, format!("{name}, this host's name, leads nowhere: {error}"), FIX)
        }
        Err(_) => Finding::warn(CHECK, format!("{name}, this host's name, is not found within 1 s"), FIX),
    }
}
