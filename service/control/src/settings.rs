//! All settings: one table, from which the settings, the variables, `samite info` and the guide's page are made.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use samite_coll::{Rows, Selection, Table};
use samite_fabric::delay::Model;
use samite_fabric::shm;
use samite_p2p::{Config, Library, Tuning};

use crate::liveness::{DETECTION_DEFAULT, DETECTION_MIN};
use crate::tuning::{self, Malformed, Section};
use crate::variable;

/// The values of all [`Parameter`]s, with their origins.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Limits and thresholds of messages.
    pub engine: Config,
    /// Sizes of shared memory.
    pub shm: shm::Config,
    /// The largest number of peers by shared memory, if it was set. Then it replaces the value in `shm`.
    pub shm_peers_max: Option<usize>,
    /// The selected transport, if any.
    pub transport: Option<String>,
    /// The selected interface for libfabric, if any.
    pub interface: Option<String>,
    /// True if a message from the network wakes a sleeping rank. `None` leaves that choice to the library.
    pub network_wakes: Option<bool>,
    /// The number of lanes of each rank.
    pub lanes: usize,
    /// The checks of the program.
    pub checks: Checks,
    /// When a thread of the library makes progress for the program.
    pub progress: Progress,
    /// The algorithms of collective operations that were selected.
    pub coll_algorithms: Selection,
    /// The rows of the tuning file for collective operations, by transport.
    coll_rows: HashMap<String, Rows>,
    /// The tuning file, if any.
    tuning: Option<String>,
    remote_shell: String,
    /// The time within which a dead host must be detected.
    pub detection: Duration,
    /// The time for which a joining rank waits for the other ranks.
    pub join_timeout: Duration,
    origins: HashMap<&'static str, Origin>,
}

/// The rules of MPI that are checked only on request, because the checks take time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// True if ready sends are checked: the receive must have been posted before.
    pub modes: bool,
    /// True if received messages are checked to be as long as their buffers. Only communicators for which the program
    /// has promised this, by the hint `exact_length`, are checked.
    pub hints: bool,
    /// True if messages are checked to have the types that their receives have.
    pub types: bool,
    /// True if the collective calls of the ranks are checked to match.
    pub collectives: bool,
}

impl Checks {
    /// The checks by name.
    const NAMES: [(&str, Field); 4] = [
        ("modes", |checks| &mut checks.modes),
        ("hints", |checks| &mut checks.hints),
        ("types", |checks| &mut checks.types),
        ("collectives", |checks| &mut checks.collectives),
    ];

    /// Parses names, separated by commas.
    fn parse(text: &str) -> Option<Self> {
        let mut checks = Self::default();
        match text {
            NOTHING => {}
            "all" => Self::NAMES.iter().for_each(|(_, check)| *check(&mut checks) = true),
            names => {
                for name in names.split(',') {
                    let (_, check) = Self::NAMES.iter().find(|(known, _)| *known == name.trim())?;
                    *check(&mut checks) = true;
                }
            }
        }
        Some(checks)
    }

    /// Returns the text that [`parse`](Self::parse) reads as these checks.
    fn text(mut self) -> String {
        let names: Vec<_> =
            Self::NAMES.iter().filter(|(_, check)| *check(&mut self)).map(|(name, _)| *name).collect();
        if names.is_empty() { NOTHING.to_owned() } else { names.join(",") }
    }
}

/// A function that returns the field of one check.
type Field = fn(&mut Checks) -> &mut bool;

/// When a thread of the library makes progress between the calls of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// While long messages of nonblocking operations are under way, or may arrive, while nonblocking collective
    /// operations are under way, while the rank has a window, and when gathered short messages have waited for some
    /// time.
    #[default]
    Needed,
    /// Always.
    Always,
    /// Never.
    Off,
}

impl Progress {
    const NAMES: [(&str, Self); 3] = [("needed", Self::Needed), ("always", Self::Always), ("off", Self::Off)];

    fn parse(text: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(name, _)| *name == text).map(|(_, progress)| *progress)
    }

    fn text(self) -> &'static str {
        Self::NAMES.iter().find(|(_, progress)| *progress == self).expect("each value has a name").0
    }
}

/// The value that selects no checks, or no file.
const NOTHING: &str = "none";

/// The origin of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// The value is the default.
    #[default]
    Default,
    /// The parameter's environment variable is set.
    Environment,
    /// The program has set the value.
    Code,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Origin::Default => "default",
            Origin::Environment => "environment",
            Origin::Code => "code",
        })
    }
}

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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

impl Default for Settings {
    fn default() -> Self {
        Self {
            engine: Config::default(),
            shm: shm::Config::default(),
            shm_peers_max: None,
            transport: None,
            interface: None,
            network_wakes: None,
            lanes: 1,
            checks: Checks::default(),
            progress: Progress::default(),
            coll_algorithms: Selection::default(),
            coll_rows: HashMap::new(),
            tuning: None,
            remote_shell: REMOTE_SHELL_DEFAULT.to_owned(),
            detection: DETECTION_DEFAULT,
            join_timeout: JOIN_TIMEOUT_DEFAULT,
            origins: HashMap::new(),
        }
    }
}

impl Settings {
    /// Returns the defaults, changed by this process's environment.
    ///
    /// # Errors
    /// [`SettingError::Value`], [`SettingError::Tuning`].
    pub fn from_environment() -> Result<Settings, SettingError> {
        Settings::from_variables(&environment)
    }

    /// Returns the defaults, changed by the variables that `env` returns.
    ///
    /// # Errors
    /// [`SettingError::Value`], [`SettingError::Tuning`].
    pub fn from_variables(env: &impl Fn(&str) -> Option<OsString>) -> Result<Settings, SettingError> {
        let mut settings = Settings::default();
        for parameter in Parameter::all() {
            let variable = parameter.variable();
            if let Some(value) = env(&variable) {
                // Bytes that are not UTF-8 become U+FFFD, which is invalid in numbers and keywords. A name of a
                // transport, of an interface or of a command may contain it here, and is not found later.
                settings.change(&parameter, &variable, &value.to_string_lossy(), Origin::Environment)?;
            }
        }
        Ok(settings)
    }

    /// Sets a parameter by its name, like `eager_max`.
    ///
    /// # Errors
    /// [`SettingError`] if there is no such parameter, or the value is invalid.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        let parameter = Parameter::all().find(|parameter| parameter.name == name);
        let parameter = parameter.ok_or_else(|| SettingError::Unknown(name.to_owned()))?;
        self.change(&parameter, name, value, Origin::Code)
    }

    /// Returns the origin of a parameter's value.
    #[must_use]
    pub fn origin(&self, parameter: &Parameter) -> Origin {
        self.origins.get(parameter.name).copied().unwrap_or_default()
    }

    /// Returns a parameter's value, as text.
    #[must_use]
    pub fn value(&self, parameter: &Parameter) -> String {
        match parameter.kind {
            Kind::Engine(field) => (field.get)(&self.engine).to_string(),
            Kind::Tuning => self.tuning.clone().unwrap_or_else(|| NOTHING.to_owned()),
            Kind::Other { get, .. } => get(self),
        }
    }

    /// Removes the values of the tuning file that were measured with other versions of libraries than the installed
    /// ones, and returns them. `libfabric` is the version of libfabric, if it is in use. The rows for collective
    /// operations remain for every version of libfabric: all ranks must have the same rows, and they may have different
    /// versions. They cannot have different versions of Samite.
    pub fn remove_foreign_tunings(&mut self, libfabric: Option<&str>) -> Vec<Tuning> {
        let fits = |tuning: &Tuning| {
            let installed = match tuning.library {
                Library::Libfabric => libfabric,
                Library::Samite => Some(env!("CARGO_PKG_VERSION")),
            };
            installed == Some(tuning.version.as_str())
        };
        let all = std::mem::take(&mut self.engine.tunings);
        let (kept, removed): (_, Vec<Tuning>) = all.into_iter().partition(fits);
        self.engine.tunings = kept;
        for tuning in removed.iter().filter(|tuning| tuning.library == Library::Samite) {
            self.coll_rows.remove(&tuning.transport);
        }
        removed
    }

    /// Reads a tuning file. Values that were set otherwise take precedence over it.
    fn read_tuning(&mut self, file: &str) -> Result<(), SettingError> {
        let failed = |line, reason| SettingError::Tuning { file: file.to_owned(), line, reason };
        let sections = match file {
            NOTHING => Vec::new(),
            file => {
                let text = read(file).map_err(|error| failed(None, error.to_string()))?;
                tuning::parse(&text).map_err(|Malformed { line, reason }| failed(Some(line), reason))?
            }
        };
        self.coll_rows = HashMap::new();
        self.engine.tunings = Vec::new();
        for Section { messages, collectives } in sections {
            self.coll_rows.insert(messages.transport.clone(), collectives);
            self.engine.tunings.push(messages);
        }
        for tuning in &mut self.engine.tunings {
            tuning.values.retain(|(name, _)| !self.origins.contains_key(name));
        }
        self.tuning = (file != NOTHING).then(|| file.to_owned());
        Ok(())
    }

    /// Returns the tables of collective operations of a rank whose port has this name. The name of a port that combines
    /// transports has `+` between their names.
    #[must_use]
    pub fn coll_table(&self, port: &str) -> Table {
        let default = Rows::default();
        let of = |transport| match self.coll_rows.get(transport) {
            Some(rows) => rows.clone().before(&default),
            None => default.clone(),
        };
        let network = port.rsplit('+').next().unwrap_or(port);
        let within = port.split('+').find(|name| *name == shm::NAME).unwrap_or(network);
        Table { selection: self.coll_algorithms.clone(), on_board: of(within), by_messages: of(network) }
    }

    /// Returns the selected transport, if any.
    #[must_use]
    pub fn transport(&self) -> Option<&str> {
        self.transport.as_deref()
    }

    /// Returns the selected interface, if any.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }

    /// Returns limits and thresholds of messages.
    #[must_use]
    pub fn messages(&self) -> &Config {
        &self.engine
    }

    fn change(
        &mut self,
        parameter: &Parameter,
        called: &str,
        value: &str,
        origin: Origin,
    ) -> Result<(), SettingError> {
        let changed = match parameter.kind {
            Kind::Engine(field) => {
                let number = number(value).filter(|number| (field.min..=field.max).contains(number));
                number.map(|number| {
                    (field.set)(&mut self.engine, number);
                    for tuning in &mut self.engine.tunings {
                        tuning.values.retain(|(name, _)| *name != field.name);
                    }
                })
            }
            Kind::Tuning if value.is_empty() => None,
            Kind::Tuning => Some(self.read_tuning(value)?),
            Kind::Other { set, .. } => set(self, value),
        };
        changed.ok_or_else(|| SettingError::Value {
            name: called.to_owned(),
            value: value.to_owned(),
            expected: parameter.range(),
            default: parameter.default(),
        })?;
        self.origins.insert(parameter.name, origin);
        Ok(())
    }
}

/// A parameter that can be set.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The parameter's name in a program.
    pub name: &'static str,
    /// The parameter's meaning.
    pub meaning: &'static str,
    /// The parameter's unit: `bytes`, `s`, `µs`; empty for a text or a count.
    pub unit: &'static str,
    /// The process that reads it.
    pub reader: Reader,
    kind: Kind,
}

/// The processes that read a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Every rank.
    Rank,
    /// `samite run`.
    Launcher,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Engine(&'static samite_p2p::Parameter),
    /// The tuning file.
    Tuning,
    Other {
        range: &'static str,
        get: fn(&Settings) -> String,
        /// Returns `None` if the text is invalid.
        set: fn(&mut Settings, &str) -> Option<()>,
    },
}

impl Parameter {
    /// Returns all parameters.
    pub fn all() -> impl Iterator<Item = Parameter> {
        let engine = Config::PARAMETERS.iter().map(|field| Parameter {
            name: field.name,
            meaning: field.meaning,
            unit: field.unit,
            reader: Reader::Rank,
            kind: Kind::Engine(field),
        });
        OTHERS.iter().copied().chain(engine)
    }

    /// Returns the name of the environment variable that sets the parameter.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("SAMITE_{}", self.name.to_uppercase())
    }

    /// Returns the valid values, in words.
    #[must_use]
    pub fn range(&self) -> String {
        match self.kind {
            Kind::Engine(field) if field.unit == "bytes" => {
                format!("a number of bytes from {} to {}", bytes(field.min), bytes(field.max))
            }
            Kind::Engine(field) => format!("a number from {} to {}", field.min, field.max),
            Kind::Tuning => "`none` or the name of a file".to_owned(),
            Kind::Other { range, .. } => range.to_owned(),
        }
    }

    /// Returns the default.
    #[must_use]
    pub fn default(&self) -> String {
        Settings::default().value(self)
    }
}

/// Declares the parameter of a size in `shm::Config`. `$least` and `$most` are the exponents of the smallest and the
/// largest valid power of two.
macro_rules! shm_bytes {
    ($field:ident, ($least:literal, $most:literal, $range:literal), $meaning:literal) => {
        Parameter {
            name: concat!("shm_", stringify!($field)),
            meaning: $meaning,
            unit: "bytes",
            reader: Reader::Rank,
            kind: Kind::Other {
                range: $range,
                get: |settings| settings.shm.$field.to_string(),
                set: |settings, text| {
                    power_of_two(text, $least, $most).map(|bytes| settings.shm.$field = bytes)
                },
            },
        }
    };
}

const OTHERS: &[Parameter] = &[
    Parameter {
        name: "transport",
        meaning: "How ranks reach each other: `samite-shm`, or a provider of libfabric like `tcp;ofi_rxm`. By default \
                  shared memory within a host, and `tcp;ofi_rxm` between hosts. With `delay(2us,0.33ns/B)+` in \
                  front of the name, each packet arrives 2 µs later than its last byte has left, at 0.33 ns for each \
                  byte; all ranks must be on one host.",
        unit: "",
        reader: Reader::Rank,
        kind: Kind::Other {
            range: "`samite-shm` or the name of a provider, also after `delay(LATENCY,TIME/B)+`",
            get: |settings| settings.transport.clone().unwrap_or_else(|| AUTOMATIC.to_owned()),
            set: |settings, text| {
                let is_valid = Model::split(text).is_none_or(|delayed| delayed.is_ok());
                name(text).filter(|_| is_valid).map(|name| settings.transport = name)
            },
        },
    },
    Parameter {
        name: "interface",
        meaning: "The interface that libfabric uses, by its name or its address. By default the interface through \
                  which the launcher reaches this host, or otherwise the provider's first interface. If all ranks \
                  are on one host, the default is loopback.",
        unit: "",
        reader: Reader::Rank,
        kind: Kind::Other {
            range: "the name of an interface, or its address",
            get: |settings| settings.interface.clone().unwrap_or_else(|| AUTOMATIC.to_owned()),
            set: |settings, text| name(text).map(|name| settings.interface = name),
        },
    },
    Parameter {
        name: "network_wakes",
        meaning: "If a message from the network wakes a rank that sleeps because it has waited long. If not, the \
                  rank polls for messages after naps of a sixteenth of the time waited, at most 16 ms each, and \
                  short messages over tcp on loopback are a quarter faster. By default `yes` only on a host with \
                  more ranks than cores.",
        unit: "",
        reader: Reader::Rank,
        kind: Kind::Other {
            range: "`yes` or `no`",
            get: |settings| match settings.network_wakes {
                None => AUTOMATIC.to_owned(),
                Some(wakes) => (if wakes { "yes" } else { "no" }).to_owned(),
            },
            set: |settings, text| yes_or_no(text).map(|wakes| settings.network_wakes = wakes),
        },
    },
    Parameter {
        name: "lanes",
        meaning: "The number of lanes of a rank. A lane is a port with its own lock and its own order of messages, \
                  for one thread (`Comm::lane`). Each lane takes as much memory and as many descriptors as a rank. \
                  All ranks of a job need the same number.",
        unit: "",
        reader: Reader::Rank,
        kind: Kind::Other {
            range: "a number from 1 to 64",
            get: |settings| settings.lanes.to_string(),
            set: |settings, text| lanes(text).map(|lanes| settings.lanes = lanes),
        },
    },
    Parameter {
        name: "check",
        meaning: "The rules of MPI that are checked although the check takes time. `modes`: a ready send waits for \
                  the receiver's answer, and ends with `Error::NotPosted` if no receive was posted for its message. \
                  `hints`: a receive ends with `Error::NotExact` if its communicator has the hint `exact_length` and \
                  the message is shorter than the buffer. `types`: a receive ends with `Error::TypesDiffer` if the \
                  message was sent as elements of other types. `collectives`: collective calls that do not match end \
                  with `Error::CallsDiffer` at each rank; a call then waits for all ranks of its communicator.",
        unit: "",
        reader: Reader::Rank,
        kind: Kind::Other {
            range: "`none`, `all`, or names separated by commas: `modes`, `hints`, `types`, `collectives`",
            get: |settings| settings.checks.text(),
            set: |settings, text| Checks::parse(text).map(|checks| settings.checks = checks),
        },
    },
    Parameter {
        name: "progress",
        meaning: "When a thread of the library makes progress while the program computes. `needed`: while a \
                  nonblocking operation is under way whose message has, or may have, at least `overlap_min` bytes; \
                  while a nonblocking collective operation is under way; while the rank has a window; while \
                  messages wait for the first contact with their receivers; and when gathered short messages wait \
                  (`bundle_max`). Partitioned operations do not count. `always`: whenever no thread of the program waits in a call. `off`: never. While the program has a `Driver`, \
                  no such thread is started.",
        unit: "",
        reader: Reader::Rank,
        kind: Kind::Other {
            range: "`needed`, `always` or `off`",
            get: |settings| settings.progress.text().to_owned(),
            set: |settings, text| Progress::parse(text).map(|progress| settings.progress = progress),
        },
    },
    Parameter {
        name: "coll_algorithms",
        meaning: "The algorithms of collective operations that replace Samite's choices: a list like \
                  `allreduce=ring,bcast=chain:65536`. If a selected algorithm cannot carry out a call, Samite chooses \
                  one. All ranks of a job need the same list. `samite info --collectives` prints the choices.",
        unit: "",
        reader: Reader::Rank,
        kind: Kind::Other {
            range: Selection::NAMES,
            get: |settings| settings.coll_algorithms.to_string(),
            set: |settings, text| {
                Selection::parse(text).map(|selection| settings.coll_algorithms = selection)
            },
        },
    },
    Parameter {
        name: "tuning",
        meaning: "A file with thresholds that `samite-bench tune` has measured on this machine. They replace the \
                  defaults of `eager_max`, `stream_max`, `bundle_max`, `read_min`, `pull_chunk`, `put_min` and \
                  `put_chunk`, separately for each transport. A parameter that is set otherwise keeps that value. With \
                  `--collectives` the file also has rows for the choice of collective algorithms, which precede the \
                  default rows. The thresholds for a transport are ignored if they were measured with another version \
                  of libfabric, or of Samite for `samite-shm`. All ranks need the file.",
        unit: "",
        reader: Reader::Rank,
        kind: Kind::Tuning,
    },
    Parameter {
        name: "shm_peers_max",
        meaning: "The largest number of ranks to which a rank can send by shared memory, and from which it can \
                  receive, at the same time. Each sender takes 192 bytes, and 72 KiB more once it has sent (with the \
                  default `shm_ring_bytes` and `shm_ring_bytes_min`). Beyond the limit a send uses another transport \
                  if the job has one, and otherwise ends with `Error::Exhausted`. By default the number of ranks of \
                  the job and a quarter more, because ranks may be restarted, but at least 256.",
        unit: "",
        reader: Reader::Rank,
        kind: Kind::Other {
            range: "`auto` or a number from 1 to 4096",
            get: |settings| {
                settings.shm_peers_max.map_or_else(|| AUTOMATIC.to_owned(), |peers| peers.to_string())
            },
            set: |settings, text| peers_max(text).map(|peers| settings.shm_peers_max = peers),
        },
    },
    shm_bytes!(
        ring_bytes,
        (12, 17, "a power of two from 4K to 128K"),
        "Size of the ring in shared memory that each sender to this rank gets when it first sends. It holds long \
         packets, and packets that this rank has not read yet."
    ),
    shm_bytes!(
        ring_bytes_max,
        (12, 23, "a power of two from 4K to 8M"),
        "Size of the larger ring that a sender gets instead if its ring of `shm_ring_bytes` is often full. It is \
         never smaller than `shm_ring_bytes`."
    ),
    shm_bytes!(
        ring_bytes_min,
        (11, 17, "a power of two from 2K to 128K"),
        "Size of a second, small ring that each sender to this rank gets, and uses as long as this rank keeps up \
         with it. Two such rings and the data should fit in the processor's first cache. It is never larger than \
         `shm_ring_bytes`."
    ),
    Parameter {
        name: "ssh",
        meaning: "The remote shell of `samite run --hosts`, with its options.",
        unit: "",
        reader: Reader::Launcher,
        kind: Kind::Other {
            range: "a command and its options",
            get: |settings| settings.remote_shell.clone(),
            set: |settings, text| (!text.trim().is_empty()).then(|| settings.remote_shell = text.to_owned()),
        },
    },
    Parameter {
        name: "detection_time",
        meaning: "The time within which a dead or unreachable host is detected. An interruption of the network of \
                  this length is always detected, and one of less than a quarter of it never.",
        unit: "s",
        reader: Reader::Launcher,
        kind: Kind::Other {
            range: "a number of seconds, 0.2 or more",
            get: |settings| settings.detection.as_secs_f64().to_string(),
            set: |settings, text| detection_time(text).map(|time| settings.detection = time),
        },
    },
    Parameter {
        name: "join_timeout",
        meaning: "The time for which a joining rank waits for the launcher's answers, and thus for the other ranks.",
        unit: "s",
        reader: Reader::Rank,
        kind: Kind::Other {
            range: "a number of seconds, 0.001 or more",
            get: |settings| settings.join_timeout.as_secs_f64().to_string(),
            set: |settings, text| join_timeout(text).map(|time| settings.join_timeout = time),
        },
    },
];

/// The largest number of lanes of a rank.
pub const LANES_MAX: usize = 64;

/// The default remote shell.
pub const REMOTE_SHELL_DEFAULT: &str = "ssh -o BatchMode=yes";

/// The default time for which a joining rank waits for the other ranks. The last host of a job can fetch a container in
/// this time.
const JOIN_TIMEOUT_DEFAULT: Duration = Duration::from_secs(300);

/// The value by which a user leaves a choice to the library.
const AUTOMATIC: &str = "auto";

/// The greatest length of a tuning file: many times the length of one that `samite-bench tune` writes.
const TUNING_BYTES_MAX: u64 = 64 << 10;

/// Returns the text of a tuning file. Refuses files that are not regular, because the call could wait for ever: for a
/// process that writes to a pipe, or for input of a terminal.
fn read(file: &str) -> io::Result<String> {
    if !std::fs::metadata(file)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    File::open(file)?.take(TUNING_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > TUNING_BYTES_MAX {
        return Err(io::Error::other("it has more than 64 KiB"));
    }
    Ok(text)
}

fn name(text: &str) -> Option<Option<String>> {
    match text {
        "" => None,
        AUTOMATIC => Some(None),
        name => Some(Some(name.to_owned())),
    }
}

fn peers_max(text: &str) -> Option<Option<usize>> {
    match text {
        AUTOMATIC => Some(None),
        text => text.parse().ok().filter(|peers| (1..=shm::Config::PEERS_MAX).contains(peers)).map(Some),
    }
}

fn lanes(text: &str) -> Option<usize> {
    text.parse().ok().filter(|lanes| (1..=LANES_MAX).contains(lanes))
}

fn yes_or_no(text: &str) -> Option<Option<bool>> {
    match text {
        AUTOMATIC => Some(None),
        "yes" => Some(Some(true)),
        "no" => Some(Some(false)),
        _ => None,
    }
}

/// Parses a detection time in seconds, as `samite run` takes it.
#[must_use]
pub fn detection_time(text: &str) -> Option<Duration> {
    let time = Duration::try_from_secs_f64(text.parse().ok()?).ok()?;
    (time >= DETECTION_MIN).then_some(time)
}

fn join_timeout(text: &str) -> Option<Duration> {
    let time = Duration::try_from_secs_f64(text.parse().ok()?).ok()?;
    (time >= Duration::from_millis(1)).then_some(time)
}

fn power_of_two(text: &str, least: u32, most: u32) -> Option<usize> {
    let bytes = number(text).filter(|bytes| bytes.is_power_of_two())?;
    ((1 << least)..=(1 << most)).contains(&bytes).then(|| usize::try_from(bytes).ok())?
}

/// Parses a number, with or without one of the binary suffixes K, M, G and T, in upper or lower case.
fn number(text: &str) -> Option<u64> {
    let shift = FACTORS.iter().find(|(letter, _)| text.ends_with([*letter, letter.to_ascii_lowercase()]));
    match shift {
        Some((_, shift)) => text[..text.len() - 1].parse::<u64>().ok()?.checked_mul(1 << shift),
        None => text.parse().ok(),
    }
}

/// Returns the shortest text that [`number`] parses as this number.
fn bytes(number: u64) -> String {
    let factor = FACTORS.iter().find(|(_, shift)| number > 0 && number.is_multiple_of(1 << shift));
    factor.map_or_else(|| number.to_string(), |(letter, shift)| format!("{}{letter}", number >> shift))
}

const FACTORS: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

/// Returns a variable of this process's environment.
#[expect(clippy::disallowed_methods, reason = "here the environment is read, and handed on as a function")]
#[must_use]
pub fn environment(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// Returns true if Samite knows the variable. A name that begins like Samite's own but is unknown is a user's mistake.
#[must_use]
pub fn is_known_variable(name: &str) -> bool {
    let joining = variable::OF_JOINING.iter().chain(&variable::OF_THE_LAUNCHER);
    joining.into_iter().any(|(known, _)| *known == name)
        || Parameter::all().any(|parameter| parameter.variable() == name)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    fn from(variable: &str, value: &str) -> Result<Settings, SettingError> {
        Settings::from_variables(&|name| (name == variable).then(|| value.into()))
    }

    #[test]
    fn every_parameter_can_be_set_to_its_default_and_to_no_nonsense() {
        for parameter in Parameter::all() {
            let settings = from(&parameter.variable(), &parameter.default()).unwrap();
            assert_eq!(settings.value(&parameter), parameter.default());
            assert_eq!(settings.origin(&parameter), Origin::Environment);
            assert!(from(&parameter.variable(), "").is_err(), "{}", parameter.name);
            assert!(parameter.meaning.ends_with('.'), "{}", parameter.name);
        }
    }

    #[test]
    fn checks_have_names() {
        let checks = |text| from("SAMITE_CHECK", text).map(|settings| settings.checks);
        assert_eq!(checks("none"), Ok(Checks::default()));
        for text in ["modes", "modes, modes"] {
            assert_eq!(checks(text), Ok(Checks { modes: true, ..Checks::default() }), "{text}");
        }
        assert_eq!(checks("hints"), Ok(Checks { hints: true, ..Checks::default() }));
        assert_eq!(checks("types"), Ok(Checks { types: true, ..Checks::default() }));
        for text in ["all", "modes,hints,types,collectives", "types, collectives, hints, modes"] {
            let all = Checks { modes: true, hints: true, types: true, collectives: true };
            assert_eq!(checks(text), Ok(all), "{text}");
        }
        assert!(["", "modes,", "None", "none,modes"].into_iter().all(|text| checks(text).is_err()));
    }

    #[test]
    fn numbers_have_units_and_limits() {
        let eager_max = |text| from("SAMITE_EAGER_MAX", text).map(|settings| settings.engine.eager_max);
        assert_eq!((eager_max("4K"), eager_max("1m"), eager_max("17")), (Ok(4096), Ok(1 << 20), Ok(17)));
        for wrong in ["2M", "-1", "K", "4KB", "99999999999999999999", "16777217T", "ä"] {
            assert!(eager_max(wrong).is_err(), "{wrong}");
        }
        insta::assert_snapshot!(eager_max("2M").unwrap_err(), @"SAMITE_EAGER_MAX is `2M`, but must be a number of bytes from 0 to 1M: correct it, or leave it out for the default, 65536");
    }

    #[test]
    fn a_tuning_file_counts_more_than_defaults_and_less_than_all_else() {
        let file = std::env::temp_dir().join(format!("samite-settings-{}", std::process::id()));
        let name = file.display().to_string();
        let text = format!(
            "[\"samite-shm\"]\nsamite = \"{}\"\neager_max = 1\nput_min = 2\nbarrier = \"2 any dissemination\"\n\
             [\"tcp\"]\nlibfabric = \"1.17\"\neager_max = 3\nalltoall = \"8 9 bruck\"\n",
            env!("CARGO_PKG_VERSION")
        );
        std::fs::write(&file, text).unwrap();
        let variables = |variable: &str| match variable {
            "SAMITE_TUNING" => Some(name.clone().into()),
            "SAMITE_PUT_MIN" => Some("77".into()),
            _ => None,
        };
        let mut settings = Settings::from_variables(&variables).unwrap();
        let values = |settings: &Settings, transport| {
            let config = settings.engine.on(transport);
            [config.eager_max, config.put_min]
        };
        let default = Config::default().eager_max;
        assert_eq!(
            ["samite-shm", "tcp", "x"].map(|of| values(&settings, of)),
            [[1, 77], [3, 77], [default, 77]]
        );
        settings.set("tuning", &name).unwrap();
        assert_eq!(values(&settings, "samite-shm"), [1, 77], "the order does not matter");
        let measured = |settings: &Settings, port| {
            let Table { on_board, by_messages, .. } = settings.coll_table(port);
            [on_board, by_messages].map(|rows| (rows.barrier[0].is_measured, rows.alltoall[0].is_measured))
        };
        for (port, expected) in [
            ("samite-shm", [(true, false), (true, false)]),
            ("loopback+samite-shm+tcp", [(true, false), (false, true)]),
            ("tcp", [(false, true), (false, true)]),
            ("x", [(false, false), (false, false)]),
        ] {
            assert_eq!(measured(&settings, port), expected, "{port}");
        }
        let removed = settings.remove_foreign_tunings(Some("1.18"));
        assert_eq!(
            measured(&settings, "samite-shm+tcp"),
            [(true, false), (false, true)],
            "all ranks choose alike"
        );
        assert_eq!(removed.iter().map(|tuning| &*tuning.transport).collect::<Vec<_>>(), ["tcp"]);
        assert_eq!(["samite-shm", "tcp"].map(|of| values(&settings, of)), [[1, 77], [default, 77]]);
        settings.set("eager_max", "5").unwrap();
        assert_eq!(values(&settings, "samite-shm"), [5, 77]);

        std::fs::write(&file, "\n[shm]\n").unwrap();
        let error = settings.set("tuning", &name).unwrap_err();
        assert!(matches!(&error, SettingError::Tuning { line: Some(2), .. }), "{error}");
        assert!(error.to_string().contains(", line 2: a section is"), "{error}");
        std::fs::remove_file(&file).unwrap();
        // Nothing is ever written to the pipe.
        let pipe = format!("{name}-pipe");
        mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        for unreadable in [name.as_str(), "/", "/dev/zero", &pipe] {
            let error = settings.set("tuning", unreadable).unwrap_err();
            assert!(matches!(&error, SettingError::Tuning { line: None, .. }), "{error}");
        }
        std::fs::remove_file(&pipe).unwrap();
    }

    #[test]
    fn what_the_program_sets_counts_more_than_the_environment() {
        let mut settings = from("SAMITE_EAGER_MAX", "100").unwrap();
        settings.set("eager_max", "200").unwrap();
        let parameter = Parameter::all().find(|parameter| parameter.name == "eager_max").unwrap();
        assert_eq!((settings.engine.eager_max, settings.origin(&parameter)), (200, Origin::Code));
        assert!(matches!(settings.set("eager", "1"), Err(SettingError::Unknown(_))));
    }
}
