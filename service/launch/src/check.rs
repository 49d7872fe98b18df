//! Checks before the start of a job, so that an error common to all ranks is reported once.

use std::ffi::OsString;

use samite_fabric::delay::undelayed;

use samite_control::{Parameter, Settings, is_known_variable, variable};

use super::say::say_to_the_end;
use super::{LaunchError, Options};

/// Checks the environment of the ranks, and the name of the transport.
pub(super) fn check(options: &Options) -> Result<(), LaunchError> {
    let set = |name: &str| {
        let given = options.env.iter().rev().find(|(key, _)| key == name);
        let given = given.map(|(_, value)| OsString::from(value)).or_else(|| std::env::var_os(name));
        let asked = options.transport.as_ref().filter(|_| name == variable::TRANSPORT);
        asked.map(OsString::from).or(given)
    };
    let settings = Settings::from_variables(&set)?;
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names.chain(options.env.iter().map(|(name, _)| name.clone())) {
        if let Some(meant) = meant(&name) {
            // Waiting for the reader of this message is safe here: no signal is blocked yet, so an interrupt ends this
            // process.
            say_to_the_end(
                "run",
                &format!(
                    "{name} is set, but samite has no such setting and ignores it; did you mean {meant}?"
                ),
            );
        }
    }
    // Check the transport only for ranks of this host with the providers of this process: other hosts may have other
    // providers, and variables for the ranks may enable a provider.
    let is_of_this_host =
        options.remote.is_none() && !options.env.iter().any(|(name, _)| name.starts_with("FI_"));
    match settings.transport().map(undelayed) {
        Some(name) if is_of_this_host && !SURE.contains(&name) => transport(name),
        _ => Ok(()),
    }
}

/// Transports that are not checked, because they always exist where Samite is installed. If libfabric is missing, a
/// rank reports that itself.
const SURE: [&str; 2] = ["samite-shm", "tcp;ofi_rxm"];

/// Returns the variable of Samite's that a misspelt name probably means.
fn meant(name: &str) -> Option<String> {
    let is_foreign = name.starts_with("SAMITE_") && !is_known_variable(name);
    let mut known = Parameter::all().map(|parameter| parameter.variable());
    is_foreign.then(|| known.find(|known| is_near(name, known))).flatten()
}

/// Returns true if one character was left out, added, replaced, or exchanged with its neighbour.
fn is_near(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let same = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let (one, other) = (&one[same..], &other[same..]);
    match (one, other) {
        ([a, b, one @ ..], [c, d, other @ ..]) if (a, b) == (d, c) && one == other => true,
        ([_, rest @ ..], _) if rest == other => true,
        (_, [_, rest @ ..]) if rest == one => true,
        ([_, one @ ..], [_, other @ ..]) => one == other,
        _ => false,
    }
}

#[cfg(feature = "ofi")]
fn transport(name: &str) -> Result<(), LaunchError> {
    use std::sync::mpsc::{RecvTimeoutError, sync_channel};

    use samite_fabric::ofi::survey::survey;
    use samite_os::signal::SignalFd;

    // A separate thread asks libfabric, since a provider may hang, and an interrupt must still end this process. The
    // coordinator reads its signals from a descriptor, so they must be blocked in all other threads. The thread blocks
    // them, and the threads that a provider starts inherit that.
    let (told, found) = sync_channel(1);
    let started = std::thread::Builder::new().name("providers".to_owned()).spawn(move || {
        let blocked = SignalFd::block(&super::coordinator::SIGNALS);
        let _ = told.send(blocked.is_ok().then(survey));
    });
    started.map_err(LaunchError::system("asking for libfabric's providers"))?;
    let found = match found.recv_timeout(SURVEY_MAX) {
        Ok(Some(Ok(found))) => found,
        Ok(Some(Err(error))) => {
            return Err(LaunchError::Transport { name: name.to_owned(), why: error.to_string() });
        }
        // The ranks will report the problem.
        Ok(None) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(()),
    };
    let mut names = vec!["samite-shm".to_owned()];
    for entry in found {
        if !names.contains(&entry.provider) {
            names.push(entry.provider);
        }
    }
    // libfabric accepts a part of a name, such as `tcp` for `tcp;ofi_rxm`.
    let is_there = names.iter().any(|there| there == name || there.split(';').any(|part| part == name));
    match is_there {
        true => Ok(()),
        false => Err(LaunchError::Transport {
            name: name.to_owned(),
            why: format!(
                "libfabric has no provider `{name}` here{}; there is {}",
                hint(name),
                names.join(", ")
            ),
        }),
    }
}

/// Returns a question for the error message if the name is probably meant for Samite's own shared memory, otherwise an
/// empty text.
#[cfg(feature = "ofi")]
fn hint(name: &str) -> &'static str {
    let means_ours = name.to_ascii_lowercase().contains("shm");
    if means_ours { "; did you mean samite-shm, Samite's own shared memory?" } else { "" }
}

#[cfg(not(feature = "ofi"))]
fn transport(name: &str) -> Result<(), LaunchError> {
    let why = "this command was built without libfabric, so the only transport is samite-shm".to_owned();
    Err(LaunchError::Transport { name: name.to_owned(), why })
}

/// The time that libfabric may take to list its providers.
#[cfg(feature = "ofi")]
const SURVEY_MAX: std::time::Duration = std::time::Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "ofi")]
    #[test]
    fn a_name_like_that_of_our_shared_memory_gets_a_hint() {
        for (name, is_near) in
            [("shm", true), ("samite_shm", true), ("SHM", true), ("tcp", false), ("smh", false)]
        {
            assert_eq!(!hint(name).is_empty(), is_near, "{name}");
        }
    }

    #[test]
    fn misspelt_variables_are_noticed_and_foreign_ones_are_not() {
        for name in ["SAMITE_TRANSPROT", "SAMITE_TRANSPOR", "SAMITE_TRANSPORTT", "SAMITE_TRANSPERT"] {
            assert_eq!(meant(name).as_deref(), Some("SAMITE_TRANSPORT"), "{name}");
        }
        for name in ["SAMITE_TRANSPORT", "SAMITE_MY_OWN", "SAMITE_", "TRANSPROT"] {
            assert_eq!(meant(name), None, "{name}");
        }
    }
}
