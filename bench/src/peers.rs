//! The MPI libraries of this machine: the distribution's, and the ones that `ci/peers.sh` installs.
//!
//! This module finds each library by its `mpicc`, and builds `../peers/peer.c` with that compiler. The settings make
//! the library use the requested transport on one host, with more ranks than cores.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use samite_launch::{self as launch, Options};

/// An MPI library, and the loops built with it.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// The library's family and version, such as `openmpi-4.1.4`.
    pub(crate) name: String,
    family: Family,
    mpicc: PathBuf,
    mpiexec: PathBuf,
    /// The folder of the library, unless the distribution has installed it.
    home: Option<PathBuf>,
    /// The name of the file with the loops, in `../peers`, without `.c`.
    loops: &'static str,
    program: PathBuf,
}

/// A group of libraries that need the same settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    OpenMpi,
    Mpich,
    Intel,
}

/// Settings that make a library use a transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The library's name for the transport.
    pub(crate) transport: &'static str,
    /// Arguments of mpiexec.
    pub(crate) args: Vec<String>,
    /// The environment of mpiexec.
    pub(crate) env: Vec<(&'static str, OsString)>,
}

/// The result of the search.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) peers: Vec<Peer>,
    /// Missing libraries, by the name of their command or folder.
    pub(crate) absent: Vec<String>,
}

/// Finds the libraries of this machine.
pub(crate) fn find() -> Found {
    let mut found = Found::default();
    for (family, suffix) in [(Family::OpenMpi, "openmpi"), (Family::Mpich, "mpich")] {
        let [mpicc, mpiexec] = ["mpicc", "mpiexec"].map(|command| in_path(&format!("{command}.{suffix}")));
        match mpicc.zip(mpiexec) {
            Some((mpicc, mpiexec)) => {
                let version = version(&mpiexec).unwrap_or_else(|| "unknown".to_owned());
                found.peers.push(Peer::new(format!("{suffix}-{version}"), family, mpicc, mpiexec, None));
            }
            None => found.absent.push(format!("mpicc.{suffix}")),
        }
    }
    let folders: Vec<PathBuf> = fs::read_dir(folder())
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    for (family, prefix) in
        [(Family::OpenMpi, "openmpi-"), (Family::Mpich, "mpich-"), (Family::Intel, "intelmpi-")]
    {
        let mut homes: Vec<_> = folders.iter().filter(|home| home.join("installed").exists()).collect();
        homes.retain(|home| file_name(home).starts_with(prefix));
        homes.sort();
        if homes.is_empty() {
            found.absent.push(folder().join(format!("{prefix}*")).display().to_string());
        }
        for home in homes {
            let [mpicc, mpiexec] = ["mpicc", "mpiexec"].map(|command| home.join("bin").join(command));
            found.peers.push(Peer::new(file_name(home), family, mpicc, mpiexec, Some(home.clone())));
        }
    }
    found
}

impl Peer {
    fn new(name: String, family: Family, mpicc: PathBuf, mpiexec: PathBuf, home: Option<PathBuf>) -> Self {
        let program = folder().join("built").join(&name);
        Self { name, family, mpicc, mpiexec, home, loops: "peer", program }
    }

    /// Returns the library with the loops of another file.
    pub(crate) fn with_loops(self, loops: &'static str) -> Self {
        let program = folder().join("built").join(format!("{}-{loops}", self.name));
        Self { loops, program, ..self }
    }

    /// Builds the loops, unless the existing program was built from the same source. A copy of the source is kept
    /// beside it.
    ///
    /// # Errors
    /// The compiler's message.
    pub(crate) fn build(&self) -> io::Result<()> {
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(self.loops).with_added_extension("c");
        let text = fs::read(&source)?;
        let built_from = self.program.with_added_extension("c");
        if self.program.exists() && fs::read(&built_from).is_ok_and(|built_from| built_from == text) {
            return Ok(());
        }
        fs::create_dir_all(folder().join("built"))?;
        let mut command = Command::new(&self.mpicc);
        command.args(["-O2", "-o"]).arg(&self.program).arg(&source).envs(self.installation());
        let output = command.output()?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            return Err(io::Error::other(format!("{command:?}: {}", message.trim())));
        }
        fs::write(built_from, text)
    }

    /// Returns the command that starts the loops as `ranks` processes; the caller appends their arguments.
    pub(crate) fn command(&self, settings: &Settings, ranks: u32) -> Command {
        let mut command = Command::new(&self.mpiexec);
        command.args(&settings.args).args(["-n", &ranks.to_string()]).arg(&self.program);
        command.envs(settings.env.iter().map(|(name, value)| (name, value))).envs(self.installation());
        command
    }

    /// Returns the settings for shared memory, or for tcp over the loopback interface. Returns `None` for another
    /// transport.
    pub(crate) fn settings(&self, transport: &str) -> Option<Settings> {
        let shared = match transport {
            "samite-shm" => true,
            _ if transport.starts_with("tcp") => false,
            _ => return None,
        };
        let (transport, args, env): (_, &str, &[(_, &str)]) = match (self.family, shared) {
            (Family::OpenMpi, true) if self.name.starts_with("openmpi-4") => {
                ("vader", "--oversubscribe --bind-to none --mca pml ob1 --mca btl self,vader", ROOT)
            }
            (Family::OpenMpi, true) => {
                ("sm", "--oversubscribe --bind-to none --mca pml ob1 --mca btl self,sm", ROOT)
            }
            (Family::OpenMpi, false) => (
                "tcp",
                "--oversubscribe --bind-to none --mca pml ob1 --mca btl self,tcp --mca btl_tcp_if_include lo",
                ROOT,
            ),
            // The distribution builds MPICH up to version 4 with UCX. PyPI's package of MPICH, from version 5, uses
            // libfabric.
            (Family::Mpich, true) if self.home.is_none() => ("ucx sm", "", &[("UCX_TLS", "self,sm")]),
            (Family::Mpich, false) if self.home.is_none() => ("ucx tcp", "", &[("UCX_TLS", "self,tcp")]),
            (Family::Mpich, true) => ("posix", "", &[]),
            (Family::Mpich, false) => ("ofi tcp", "", OFI_TCP),
            (Family::Intel, true) => ("shm", "", &[("I_MPI_FABRICS", "shm")]),
            (Family::Intel, false) => {
                ("ofi tcp", "", &[("I_MPI_FABRICS", "ofi"), ("FI_PROVIDER", "tcp"), ("FI_TCP_IFACE", "lo")])
            }
        };
        Some(Settings {
            transport,
            args: args.split_whitespace().map(str::to_owned).collect(),
            env: env.iter().map(|&(name, value)| (name, value.into())).collect(),
        })
    }

    /// Returns the variables with which a thread of the library makes progress while the program computes. The list is
    /// empty if the library has no such thread.
    pub(crate) fn progress(&self) -> &'static [(&'static str, &'static str)] {
        match self.family {
            Family::OpenMpi => &[],
            Family::Mpich => &[("MPIR_CVAR_ASYNC_PROGRESS", "1")],
            Family::Intel => &[("I_MPI_ASYNC_PROGRESS", "1")],
        }
    }

    /// Returns the variables by which a relocatable library finds its folder.
    fn installation(&self) -> Vec<(&'static str, OsString)> {
        match (&self.home, self.family) {
            (Some(home), Family::Intel) => vec![("I_MPI_ROOT", home.into())],
            _ => Vec::new(),
        }
    }
}

/// Open MPI's permission to run as root, for example in a container.
const ROOT: &[(&str, &str)] = &[
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("PRTE_ALLOW_RUN_AS_ROOT", "1"),
    ("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
];

/// Variables that make MPICH use libfabric's TCP. Without them it uses shared memory between ranks of a host.
const OFI_TCP: &[(&str, &str)] = &[
    ("MPIR_CVAR_NOLOCAL", "1"),
    ("MPIR_CVAR_CH4_NETMOD", "ofi"),
    ("FI_PROVIDER", "tcp"),
    ("FI_TCP_IFACE", "lo"),
];

/// Returns the folder in which `ci/peers.sh` installs and this module builds.
fn folder() -> PathBuf {
    target().join("peers")
}

/// Returns the folder for the build output of the workspace.
pub(crate) fn target() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    workspace.join(env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into()))
}

fn in_path(command: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(command)).find(|file| file.is_file())
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the version of a library: the first word of its launcher's output that has the form of a version.
fn version(mpiexec: &Path) -> Option<String> {
    let output = Command::new(mpiexec).arg("--version").envs(ROOT.iter().copied()).output().ok()?;
    find_version(&String::from_utf8_lossy(&output.stdout))
}

fn find_version(text: &str) -> Option<String> {
    let is_version = |word: &&str| {
        word.contains('.')
            && word.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    text.split_whitespace().find(is_version).map(str::to_owned)
}

/// Runs this program, with its own arguments, as a job of two ranks over each transport, and then `measure` for each
/// MPI library that has a similar transport. Returns the exit code of the first job that fails.
pub(crate) fn run_beside(
    transports: &[String],
    peers: &[Peer],
    measure: impl Fn(&Peer, &Settings) -> Result<(), Box<dyn Error + Send + Sync>>,
) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
    for transport in transports {
        let code = launch::run(Options {
            transport: Some(transport.clone()),
            args: env::args_os().skip(1).collect(),
            ..Options::new(2, env::current_exe()?)
        })?;
        if code != 0 {
            return Ok(code.into());
        }
        for peer in peers {
            if let Some(settings) = peer.settings(transport) {
                measure(peer, &settings)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_launchers_say() {
        let open_mpi = "mpiexec.openmpi (OpenRTE) 4.1.4\n\nReport bugs to ...";
        let mpich =
            "HYDRA build details:\n    Version:        4.0.2\n    Release Date:   Thu Apr  7 12:34:45";
        assert_eq!(find_version(open_mpi).as_deref(), Some("4.1.4"));
        assert_eq!(find_version(mpich).as_deref(), Some("4.0.2"));
        assert_eq!(find_version("mpiexec ... 4."), None);
    }

    #[test]
    fn a_library_is_told_which_path_to_take() {
        let peer = |name: &str, family, home: Option<&str>| {
            Peer::new(name.into(), family, "mpicc".into(), "mpiexec".into(), home.map(PathBuf::from))
        };
        let path = |peer: &Peer, transport| peer.settings(transport).map(|settings| settings.transport);
        let open_mpi = peer("openmpi-4.1.4", Family::OpenMpi, None);
        assert_eq!(
            ["samite-shm", "tcp;ofi_rxm", "verbs"].map(|of| path(&open_mpi, of)),
            [Some("vader"), Some("tcp"), None]
        );
        assert_eq!(path(&peer("openmpi-5.0.11", Family::OpenMpi, Some("/o")), "samite-shm"), Some("sm"));

        let intel = peer("intelmpi-2021", Family::Intel, Some("/i"));
        let command = intel.command(&intel.settings("samite-shm").unwrap(), 8);
        let args: Vec<_> = command.get_args().take(2).collect();
        assert_eq!(args, ["-n", "8"]);
        let env: Vec<_> = command
            .get_envs()
            .map(|(name, value)| (name.to_str().unwrap(), value.unwrap().to_str().unwrap()))
            .collect();
        assert_eq!(env, [("I_MPI_FABRICS", "shm"), ("I_MPI_ROOT", "/i")]);
    }
}
