//! The settings of a rank, as a program changes them.

use std::time::Duration;

use crate::error::Public;

/// The values of all parameters: `samite info --parameters` lists them.
///
/// A value that a program sets takes precedence over the environment:
/// ```
/// use std::time::Duration;
///
/// let mut settings = samite::Settings::from_environment()?;
/// settings.set_eager_max(4 << 10)?;
/// settings.set_linger(Duration::from_secs(1))?;
/// // A parameter can be set by its name, for values that come from a file or a command line.
/// settings.set("eager_max", "4K")?;
/// let world = settings.init()?;
/// # Ok::<(), samite::InitError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Settings(pub(crate) samite_control::Settings);

impl Settings {
    /// Returns the defaults, changed by this process's environment.
    ///
    /// # Errors
    /// [`SettingError::Value`], [`SettingError::Tuning`].
    pub fn from_environment() -> Result<Settings, SettingError> {
        samite_control::Settings::from_environment().map(Settings).map_err(Public::public)
    }

    /// Sets a parameter by its name, like `eager_max`.
    ///
    /// # Errors
    /// [`SettingError`] if there is no such parameter, or the value is invalid.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        self.0.set(name, value).map_err(Public::public)
    }

    /// Returns the selected transport, if any.
    #[must_use]
    pub fn transport(&self) -> Option<&str> {
        self.0.transport()
    }

    /// Returns the selected interface, if any.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        self.0.interface()
    }
}

/// Declares the setters of all parameters that a rank reads. A setter checks its value as [`Settings::set`] does.
macro_rules! setters {
    ($($(#[doc = $doc:literal])+ $setter:ident($value:ident: $type:ty) = $name:literal, $text:expr;)*) => {
        impl Settings {
            $(
                $(#[doc = $doc])+
                ///
                /// # Errors
                /// [`SettingError::Value`].
                pub fn $setter(&mut self, $value: $type) -> Result<(), SettingError> {
                    self.set($name, &$text)
                }
            )*
        }

        #[cfg(test)]
        const SETTERS: &[&str] = &[$($name),*];
    };
}

setters! {
    /// Selects the transport by its name: `samite-shm` for Samite's own shared memory, or a provider of libfabric as
    /// `samite info` and `fi_info` print it, like `tcp;ofi_rxm`. `shm` is a provider of libfabric, and not
    /// `samite-shm`. `auto` leaves the choice to Samite. [`Settings::init`] returns an error if the
    /// transport does not exist or cannot be opened.
    set_transport(name: &str) = "transport", name;
    /// Selects the interface for libfabric, by its name or its address; `auto` leaves the choice to Samite.
    set_interface(name: &str) = "interface", name;
    /// Sets whether a message from the network wakes a rank that sleeps.
    set_network_wakes(wakes: bool) = "network_wakes", if wakes { "yes" } else { "no" };
    /// Sets the number of lanes of a rank: see [`Comm::lane`](crate::Comm::lane). All ranks of a job need the same
    /// number.
    set_lanes(lanes: usize) = "lanes", lanes.to_string();
    /// Selects the checks of the program: see [`Check`].
    set_check(checks: &[Check]) = "check", names(checks);
    /// Sets when a thread of the library makes progress while the program computes.
    set_progress(progress: Progress) = "progress", progress.name();
    /// Selects algorithms of collective operations: see
    /// [`Comm::with_coll_algorithms`](crate::Comm::with_coll_algorithms). All ranks of a job need the same selection.
    set_coll_algorithms(selection: &str) = "coll_algorithms", selection;
    /// Reads a file with thresholds that `samite-bench tune` has measured on this machine. They replace the defaults,
    /// and no values that the environment or this program has set. A file with a mistake, or that cannot be read, is
    /// [`SettingError::Tuning`].
    set_tuning(file: &str) = "tuning", file;
    /// Sets the largest number of ranks with which this rank can communicate by shared memory at the same time.
    set_shm_peers_max(peers: usize) = "shm_peers_max", peers.to_string();
    /// Sets the size of the shared memory that each sender to this rank gets: a power of two.
    set_shm_ring_bytes(bytes: usize) = "shm_ring_bytes", bytes.to_string();
    /// Sets the size of the larger shared memory that a sender gets if its shared memory of the size `shm_ring_bytes`
    /// is often full: a power of two.
    set_shm_ring_bytes_max(bytes: usize) = "shm_ring_bytes_max", bytes.to_string();
    /// Sets the size of the small shared memory that a sender uses while this rank keeps up with it: a power of two.
    set_shm_ring_bytes_min(bytes: usize) = "shm_ring_bytes_min", bytes.to_string();
    /// Sets the time for which a rank waits for the other ranks when it joins.
    set_join_timeout(time: Duration) = "join_timeout", time.as_secs_f64().to_string();
    /// Sets the length of the longest message that is sent in the packet of its envelope.
    set_eager_max(bytes: usize) = "eager_max", bytes.to_string();
    /// Sets the length of the longest message whose bytes follow its envelope without a request by the receiver.
    set_stream_max(bytes: usize) = "stream_max", bytes.to_string();
    /// Sets the size of the outbox, for short messages whose sends return before the messages are sent. With 0 only
    /// buffered sends return before their messages are sent: see [`Comm::send`](crate::Comm::send).
    set_outbox_max(bytes: usize) = "outbox_max", bytes.to_string();
    /// Sets the room for short messages that travel together in one packet, over transports where each packet needs a
    /// system call. With 0 each message has a packet of its own.
    set_bundle_max(bytes: usize) = "bundle_max", bytes.to_string();
    /// Sets the time for which a short message waits for other messages that travel in the same packet, while the
    /// program makes no call: see [`Progress::Needed`].
    set_bundle_delay(time: Duration) = "bundle_delay_us", time.as_micros().to_string();
    /// Sets the budget for messages of buffered sends without a buffer of their own: see
    /// [`Mode::Buffered`](crate::Mode::Buffered).
    set_buffer_max(bytes: usize) = "buffer_max", bytes.to_string();
    /// Sets the budget for the memory in which this rank publishes data of collective operations for the ranks of its
    /// host. With 0 these operations send messages.
    set_board_max(bytes: usize) = "board_max", bytes.to_string();
    /// Sets the length of the shortest message that the receiver reads in the sender's memory.
    set_read_min(bytes: usize) = "read_min", bytes.to_string();
    /// Sets the budget for data that arrives before its receive.
    set_unexpected_max(bytes: usize) = "unexpected_max", bytes.to_string();
    /// Sets the budget for envelopes without data that arrive before their receive.
    set_envelopes_max(bytes: usize) = "envelopes_max", bytes.to_string();
    /// Sets the number of unacknowledged packets to one peer at which further messages wait, if the peer must answer
    /// them.
    set_announced_max(messages: usize) = "announced_max", messages.to_string();
    /// Sets the credit that a peer gets at first contact.
    set_window_min(bytes: usize) = "window_min", bytes.to_string();
    /// Sets the maximum credit that one peer may hold.
    set_window_max(bytes: usize) = "window_max", bytes.to_string();
    /// Sets the length of the longest piece that one get fetches.
    set_pull_chunk(bytes: usize) = "pull_chunk", bytes.to_string();
    /// Sets the number of gets of one message that are outstanding at a time.
    set_pull_depth(gets: usize) = "pull_depth", gets.to_string();
    /// Sets the length of the shortest message that the sender puts into the receiver's memory.
    set_put_min(bytes: usize) = "put_min", bytes.to_string();
    /// Sets the length of the longest piece that one put writes.
    set_put_chunk(bytes: usize) = "put_chunk", bytes.to_string();
    /// Sets the number of puts of one message that are outstanding at a time.
    set_put_depth(puts: usize) = "put_depth", puts.to_string();
    /// Sets the budget for memory that stays registered with the network for later messages.
    set_registered_max(bytes: usize) = "registered_max", bytes.to_string();
    /// Sets the number of bytes of one message that the receiver requests at a time.
    set_push_window(bytes: usize) = "push_window", bytes.to_string();
    /// Sets the budget for memory of ended operations that a port may still access.
    set_quarantine_max(bytes: usize) = "quarantine_max", bytes.to_string();
    /// Sets the number of communicators that this rank may have at a time, beside the communicator of the job.
    set_communicators_max(communicators: usize) = "communicators_max", communicators.to_string();
    /// Sets the length of the shortest message that travels while the program computes: see [`Progress::Needed`].
    set_overlap_min(bytes: usize) = "overlap_min", bytes.to_string();
    /// Sets the time for which a leaving rank waits for its peers to take the messages sent to them.
    set_linger(time: Duration) = "linger_us", time.as_micros().to_string();
}

/// A rule of MPI that Samite checks only on request, because the check takes time. It is for tests of programs
/// ([`Settings::set_check`], `SAMITE_CHECK`).
///
/// ```
/// let mut settings = samite::Settings::default();
/// settings.set_check(&[samite::Check::Modes])?;
/// # Ok::<(), samite::SettingError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Check {
    /// A ready send ends with [`Error::NotPosted`](crate::Error::NotPosted) if no receive was posted for its message:
    /// see [`Mode::Ready`](crate::Mode::Ready).
    Modes,
    /// A receive of a message that is shorter than its buffer ends with [`Error::NotExact`](crate::Error::NotExact) on
    /// a communicator with the hint [`exact_length`](crate::Hints::exact_length).
    Hints,
    /// A receive of a message that was sent as elements of other types ends with
    /// [`Error::TypesDiffer`](crate::Error::TypesDiffer) (MPI 4.1, section 3.3.1). Both ranks must have this check
    /// enabled: a message of another rank has no types, and is received without the check.
    ///
    /// Types are compared, not lengths: four `f64` may be received into ten. An array has the type of its elements, and
    /// numbers with the size of a pointer have the type of the numbers with this size. `u8` agrees with every type (as
    /// `MPI_BYTE` and `MPI_PACKED`), and so does a message without elements. A [`Layout`](crate::Layout) has the types
    /// of the elements that it selects, in its order. A struct that is sent without a layout has a type of its own,
    /// known by its name: it agrees neither with the sequence of its fields nor with a struct of another name. All
    /// serialized values have one type. A rank that does not use a type itself may not know the name of the type, and
    /// reports a digest.
    Types,
    /// Collective calls that do not match end with [`Error::CallsDiffer`](crate::Error::CallsDiffer) at every rank of
    /// the communicator. The error names two ranks and the places of their calls in the program. The check compares the
    /// operation, the root, the type and number of the elements, the lengths of blocks that all ranks pass, the
    /// reduction, the selected algorithm, and the form: in place or not, and blocking, nonblocking or persistent (MPI
    /// 4.1, sections 6.2.1, 6.12 and 6.13).
    ///
    /// All ranks must have this check enabled. Each call then begins with a comparison, for which each rank sends and
    /// receives two short messages on average. So it waits for all ranks, although the call itself may not.
    Collectives,
}

/// When a thread of the library makes progress while the program computes ([`Settings::set_progress`],
/// `SAMITE_PROGRESS`).
///
/// Calls that wait make progress themselves. Between calls nothing moves without such a thread, so a nonblocking
/// operation that needs an answer of this rank would wait for the next call. While the program has a
/// [`Driver`](crate::Driver), no such thread is started: progress is made when the program drives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// While long messages of nonblocking operations are under way, or may arrive, while messages wait for the first
    /// contact with their receivers, or while short messages are gathered for a packet
    /// ([`set_bundle_max`](Settings::set_bundle_max)). Long messages have at least
    /// [`overlap_min`](Settings::set_overlap_min) bytes. Persistent operations and the operations of a scope count as
    /// nonblocking operations. Nonblocking collective operations count with any length. Partitioned operations do not
    /// count. A rank that has a window also makes progress in this way, because other ranks may access it at any time. The thread starts when a call first returns and leaves such an operation, and then stays: it sleeps while
    /// it is not needed. This is the default.
    #[default]
    Needed,
    /// Whenever no thread of the program waits in a call, from the first call on.
    Always,
    /// Never. Futures still have a driver: see [`Driver`](crate::Driver).
    Off,
}

impl Progress {
    /// Returns the value of the parameter `progress`.
    fn name(self) -> &'static str {
        match self {
            Self::Needed => "needed",
            Self::Always => "always",
            Self::Off => "off",
        }
    }
}

/// Returns the value of the parameter `check` that selects `checks`.
fn names(checks: &[Check]) -> String {
    let name = |check: &Check| match check {
        Check::Modes => "modes",
        Check::Hints => "hints",
        Check::Types => "types",
        Check::Collectives => "collectives",
    };
    match checks {
        [] => "none".to_owned(),
        checks => checks.iter().map(name).collect::<Vec<_>>().join(","),
    }
}

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// The variable, or the parameter that a program named, has an invalid value.
    #[error(
        "{name} is `{value}`, but must be {expected}: correct it, or leave it out for the default, {default}"
    )]
    Value {
        /// The variable or the parameter.
        name: String,
        /// The invalid value.
        value: String,
        /// The valid values.
        expected: String,
        /// The default, which suits most programs.
        default: String,
    },
    /// The tuning file cannot be read, or contains a mistake.
    #[error(
        "the tuning file {file}{}: {reason}: correct it, remove it and measure again by `samite-bench tune`, or leave \
         SAMITE_TUNING out",
        line.map_or(String::new(), |line| format!(", line {line}"))
    )]
    Tuning {
        /// The file.
        file: String,
        /// The line, from 1; `None` if the file cannot be read.
        line: Option<usize>,
        /// The mistake, or the error of the system.
        reason: String,
    },
    /// A program names a parameter that does not exist.
    #[error("there is no parameter `{0}`: `samite info --parameters` lists them")]
    Unknown(String),
}

impl Public for samite_control::SettingError {
    type Type = SettingError;
    fn public(self) -> SettingError {
        match self {
            Self::Value { name, value, expected, default } => {
                SettingError::Value { name, value, expected, default }
            }
            Self::Tuning { file, line, reason } => SettingError::Tuning { file, line, reason },
            Self::Unknown(name) => SettingError::Unknown(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use samite_control::{Parameter, Reader};

    use super::*;

    #[test]
    fn every_parameter_of_a_rank_has_a_setter() {
        let of_ranks = Parameter::all().filter(|parameter| parameter.reader == Reader::Rank);
        assert_eq!(of_ranks.map(|parameter| parameter.name).collect::<Vec<_>>(), SETTERS);
    }

    #[test]
    fn setters_set_what_they_name_and_check_it() {
        let mut settings = Settings::default();
        settings.set_transport("samite-shm").unwrap();
        settings.set_network_wakes(true).unwrap();
        settings.set_join_timeout(Duration::from_millis(1500)).unwrap();
        settings.set_pull_depth(7).unwrap();
        settings.set_linger(Duration::from_secs(2)).unwrap();
        settings.set_check(&[Check::Modes]).unwrap();
        assert!(settings.0.checks.modes && !settings.0.checks.hints);
        settings.set_check(&[Check::Hints, Check::Modes, Check::Types]).unwrap();
        assert!(settings.0.checks.modes && settings.0.checks.hints && settings.0.checks.types);
        settings.set_check(&[]).unwrap();
        assert!(!settings.0.checks.modes && !settings.0.checks.hints && !settings.0.checks.types);
        let Settings(inner) = &settings;
        assert_eq!((settings.transport(), inner.network_wakes), (Some("samite-shm"), Some(true)));
        assert_eq!((inner.join_timeout, inner.engine.pull_depth), (Duration::from_millis(1500), 7));
        assert_eq!(inner.engine.linger_us, 2_000_000);
        let error = settings.set_eager_max(2 << 20).unwrap_err();
        assert!(
            matches!(error, SettingError::Value { name, value, .. } if name == "eager_max" && value == "2097152")
        );
        settings.set_shm_ring_bytes(5000).unwrap_err();
    }
}
