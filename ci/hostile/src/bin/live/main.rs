//! Attacks running jobs, from outside and from inside, while their ranks exchange and check messages.
//!
//! ```text
//! samite-hostile-live SAMITE SECONDS [PART]...   runs all parts, or the named parts, with the command SAMITE; exits with
//!                                                code 1 if a job was harmed
//! ```
//! The other subcommands are the processes of an attack: honest ranks, a misbehaving rank, unauthenticated clients, a
//! spy.

#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that starts processes, tells what it does, and waits limited times"
)]

mod attack;
mod honest;
mod job;

use std::error::Error;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getuid, kill_process};

use self::job::{Job, listening_addresses, processes};

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match &words[..] {
        ["honest", folder] => honest::rank(Path::new(folder)),
        ["rude", folder] => honest::rude(Path::new(folder)),
        ["stranger", style, addresses @ ..] => attack::stranger(style, addresses),
        ["spy", targets @ ..] => attack::spy(targets),
        [samite, seconds, parts @ ..] => live(samite, seconds, parts),
        _ => Err("samite-hostile-live SAMITE SECONDS [PART]...".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hostile: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the attacks, which together take about `seconds`.
fn live(samite: &str, seconds: &str, parts: &[&str]) -> Outcome {
    let scratch = Scratch::new()?;
    let stage = Stage { samite: fs::canonicalize(samite)?, scratch: &scratch.0, program: scratch.program()? };
    let share = Duration::from_secs(seconds.parse()?) / 10;
    let all: [(&str, Part<'_>, u32); 5] = [
        ("strangers", Stage::strangers, 5),
        ("waiting", Stage::the_waiting_launcher, 1),
        ("rendezvous", Stage::the_rendezvous, 1),
        ("rude", Stage::rude_members, 1),
        ("memory", Stage::shared_memory, 2),
    ];
    if let Some(unknown) = parts.iter().find(|part| !all.iter().any(|(name, ..)| name == *part)) {
        return Err(format!("there is no part {unknown}: they are {:?}", all.map(|(name, ..)| name)).into());
    }
    for (name, part, shares) in all {
        if parts.is_empty() || parts.contains(&name) {
            part(&stage, share * shares)?;
        }
    }
    Ok(())
}

type Part<'a> = fn(&Stage<'a>, Duration) -> Outcome;

/// The common state of all attacks.
struct Stage<'a> {
    samite: PathBuf,
    scratch: &'a Path,
    /// The path of a copy of this program that any user may run.
    program: PathBuf,
}

impl<'a> Stage<'a> {
    fn run(&self, name: &str, arguments: &str, script: &str) -> Result<Job, Box<dyn Error>> {
        let mut command = Command::new(&self.samite);
        command.arg("run").args(arguments.split_whitespace()).args(["--", "sh", "-c", script]);
        command.env("XDG_RUNTIME_DIR", self.scratch).stdin(Stdio::null());
        Job::start(name, self.scratch, command)
    }

    fn honest(&self, name: &str) -> String {
        format!("exec {} honest {}", self.program.display(), self.scratch.join(name).display())
    }

    /// Writes a remote shell that runs its command on this host. If `waits_for` is given, the shell for the second host
    /// first waits until that file exists.
    fn shell(&self, waits_for: Option<&Path>) -> Result<PathBuf, Box<dyn Error>> {
        let path = self.scratch.join("shell");
        let waits = waits_for.map_or(String::new(), |file| {
            format!("[ $1 = 127.0.0.2 ] && while [ ! -e {} ]; do sleep 0.1; done\n", file.display())
        });
        fs::write(&path, format!("#!/bin/sh\n{waits}shift\nexec \"$@\"\n"))?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        Ok(path)
    }

    /// Starts a process of this program, as another user if requested and possible.
    fn other(&self, arguments: &[String], is_foreign: bool) -> Result<Attacker, Box<dyn Error>> {
        let mut command = Command::new(&self.program);
        command.args(arguments).stdin(Stdio::piped());
        if is_foreign && getuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        Ok(Attacker(command.spawn()?))
    }

    fn attack(
        &self,
        style: &str,
        addresses: &[String],
        is_foreign: bool,
    ) -> Result<Attacker, Box<dyn Error>> {
        let words = ["stranger".to_owned(), style.to_owned()].into_iter().chain(addresses.iter().cloned());
        self.other(&words.collect::<Vec<_>>(), is_foreign)
    }

    /// Attacks all sockets of two jobs, one style after the other, as this user and as another.
    fn strangers(&self, time: Duration) -> Outcome {
        let shell = self.shell(None)?;
        let far =
            format!("-n 4 --transport tcp;ofi_rxm --hosts 127.0.0.1,127.0.0.2 --ssh {}", shell.display());
        let mut jobs =
            [self.run("far", &far, &self.honest("far"))?, self.run("near", "-n 4", &self.honest("near"))?];
        for job in &mut jobs {
            job.progresses("before all attacks")?;
        }
        self.spy(&jobs)?;
        let each = time / (2 * attack::STYLES.len() as u32);
        for is_foreign in [true, false] {
            for style in attack::STYLES {
                let mut targets: Vec<String> =
                    jobs.iter().flat_map(|job| listening_addresses(&job.mark)).collect();
                if !is_foreign {
                    targets.extend(sockets(&self.scratch.join("samite"))?);
                }
                let attacker = self.attack(style, &targets, is_foreign)?;
                let begin = Instant::now();
                while begin.elapsed() < each {
                    for job in &mut jobs {
                        job.progresses(style)?;
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
                attacker.end(style)?;
            }
            let user = if is_foreign && getuid().is_root() { "another user" } else { "this user" };
            println!("hostile: strangers of {user}: {} and {}", jobs[0].progress(), jobs[1].progress());
        }
        // The job must still answer observers, and still report a failure.
        let mut look = Command::new(&self.samite);
        let look = look.args(["ps", "--json"]).env("XDG_RUNTIME_DIR", self.scratch).output()?;
        if String::from_utf8_lossy(&look.stdout).lines().count() < 2 {
            return Err(format!("`samite ps` does not show both jobs: {look:?}").into());
        }
        jobs.into_iter().try_for_each(Job::end)
    }

    /// Checks that another user can open nothing of a job's processes.
    fn spy(&self, jobs: &[Job]) -> Outcome {
        if !getuid().is_root() {
            println!("hostile: not root, so nothing is tried as another user");
            return Ok(());
        }
        let pids = jobs.iter().flat_map(|job| processes(&job.mark)).map(|pid| pid.to_string());
        let sockets = sockets(&self.scratch.join("samite"))?;
        let words = ["spy".to_owned()].into_iter().chain(pids).chain(sockets);
        let mut spy = self.other(&words.collect::<Vec<_>>(), true)?;
        match spy.0.wait()?.success() {
            true => Ok(()),
            false => Err("another user can open what is the job's alone".into()),
        }
    }

    /// Attacks the launcher while it waits for an agent.
    fn the_waiting_launcher(&self, time: Duration) -> Outcome {
        let go = self.scratch.join("go");
        let shell = self.shell(Some(&go))?;
        let arguments = format!("-n 2 --hosts 127.0.0.1,127.0.0.2 --ssh {}", shell.display());
        let mut job = self.run("late", &arguments, &self.honest("late"))?;
        let addresses = await_addresses(&job.mark)?;
        for style in attack::STYLES {
            let attacker = self.attack(style, &addresses, true)?;
            std::thread::sleep(time / attack::STYLES.len() as u32);
            attacker.end(style)?;
        }
        // The flood goes on while the agent connects.
        let attackers = ["newlines", "crowd"].map(|style| self.attack(style, &addresses, true));
        fs::write(&go, "")?;
        job.progresses("strangers at the waiting launcher")?;
        for attacker in attackers {
            attacker?.end("at the waiting launcher")?;
        }
        println!("hostile: strangers at the waiting launcher: {}", job.progress());
        job.end()
    }

    /// Attacks a rendezvous while ranks join, communicate, and learn of a failure.
    fn the_rendezvous(&self, time: Duration) -> Outcome {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut command = Command::new(&self.samite);
        let mut place = Job::start("place", self.scratch, {
            command.args(["rendezvous", "-n", "3", &address.to_string()]).stdin(Stdio::null());
            command
        })?;
        let addresses = await_addresses(&place.mark)?;
        let attackers = ["newlines", "crowd", "slow"].map(|style| self.attack(style, &addresses, true));
        let begin = Instant::now();
        let rank = |rank: u32| {
            let mut command = Command::new(&self.program);
            command.arg("honest").arg(self.scratch.join("met")).stdin(Stdio::null());
            command.env("SAMITE_RENDEZVOUS", address.to_string()).env("SAMITE_TRANSPORT", "tcp;ofi_rxm");
            command.env("SAMITE_RANK", rank.to_string()).env("SAMITE_SIZE", "3").env("HOSTILE_HEARS", "");
            Job::start("met", self.scratch, command)
        };
        let mut ranks = [rank(0)?, rank(1)?, rank(2)?];
        ranks[0].progresses("strangers at the rendezvous")?;
        println!("hostile: ranks met after {:.1} s", begin.elapsed().as_secs_f64());
        std::thread::sleep(time);
        ranks[0].progresses("strangers at the rendezvous")?;
        let begin = Instant::now();
        kill_process(Pid::from_child(&ranks[2].child), Signal::KILL)?;
        ranks[0].tells("2 failed")?;
        println!("hostile: a death was told after {:.1} s", begin.elapsed().as_secs_f64());
        for attacker in attackers {
            attacker?.end("at the rendezvous")?;
        }
        let [zero, mut one, mut two] = ranks;
        zero.end()?;
        if !one.child.wait()?.success() {
            return Err("rank 1 of those who met failed".into());
        }
        two.child.wait()?;
        place.child.wait()?;
        Ok(())
    }

    /// Runs a rank that violates the control protocol in several ways, beside two honest ranks.
    fn rude_members(&self, time: Duration) -> Outcome {
        let (program, stop) = (self.program.display(), self.scratch.join("rude"));
        let stop = stop.display();
        let script = format!("[ $SAMITE_RANK = 2 ] && exec {program} rude {stop}; {}", self.honest("rude"));
        let mut job = self.run("rude", "-n 3 --on-failure restart=1000000", &script)?;
        let begin = Instant::now();
        while begin.elapsed() < time {
            job.progresses("a rude member")?;
            std::thread::sleep(Duration::from_millis(100));
        }
        println!("hostile: beside a rude member: {}", job.progress());
        job.end()
    }

    /// Writes arbitrary bytes over all memory in which two ranks receive.
    fn shared_memory(&self, time: Duration) -> Outcome {
        let arguments = "-n 4 --transport samite-shm --on-failure continue";
        let mut job = self.run("memory", arguments, &self.honest("memory"))?;
        job.progresses("before the memory is written")?;
        let begin = Instant::now();
        let mut seed = 1;
        let mut written = 0;
        while begin.elapsed() < time {
            for rank in [2, 3] {
                written += attack::write_mailboxes(&job.mark, rank, &mut seed)?;
            }
            job.progresses("garbage in the memory of two ranks")?;
        }
        if written == 0 {
            return Err("no memory was found that could be written".into());
        }
        println!("hostile: {written} writes to memory of two ranks: {}", job.progress());
        job.end()
    }
}

/// A process that attacks until it is killed.
struct Attacker(Child);

impl Attacker {
    /// Kills the attacker. Returns an error if it has exited by itself.
    fn end(mut self, what: &str) -> Outcome {
        if let Some(status) = self.0.try_wait()? {
            return Err(format!("the attacker {what} has ended: {status}").into());
        }
        Ok(())
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the named sockets in a directory.
fn sockets(directory: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut sockets = Vec::new();
    for entry in fs::read_dir(directory)? {
        sockets.push(entry?.path().display().to_string());
    }
    Ok(sockets)
}

/// Waits until a process with this mark listens at a port.
fn await_addresses(mark: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let begin = Instant::now();
    loop {
        let addresses = listening_addresses(mark);
        if !addresses.is_empty() {
            return Ok(addresses);
        }
        if begin.elapsed() > job::PATIENCE {
            return Err("no port is listened at".into());
        }
    }
}

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, Box<dyn Error>> {
        let path = std::env::temp_dir().join(format!("samite-hostile-{}", std::process::id()));
        // Other users may traverse this directory, to run the program.
        DirBuilder::new().mode(0o711).create(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o711))?;
        Ok(Scratch(path))
    }

    fn program(&self) -> Result<PathBuf, Box<dyn Error>> {
        let path = self.0.join("program");
        fs::copy(std::env::current_exe()?, &path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the address of a listener if it is a network port and not a named socket.
fn port(address: &str) -> Option<SocketAddr> {
    address.parse().ok()
}

/// Returns the content of a file, or an empty text if it cannot be read, for example because its process has ended.
fn read_to_string(path: &str) -> String {
    let mut text = Vec::new();
    match fs::File::open(path).and_then(|mut file| file.read_to_end(&mut text)) {
        Err(error) if error.kind() != ErrorKind::NotFound => String::new(),
        _ => String::from_utf8_lossy(&text).into_owned(),
    }
}

/// The user `nobody`.
const NOBODY: u32 = 65534;
