//! Attacked jobs.

use std::collections::VecDeque;
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Outcome, read_to_string};

/// The longest time for which a job may make no progress, on a machine that the attackers keep busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A job, or one process that takes part in a job.
pub(crate) struct Job {
    name: String,
    /// The value of the environment variable that marks the processes of the job.
    pub(crate) mark: String,
    pub(crate) child: Child,
    lines: Receiver<String>,
    /// The last lines of output.
    said: VecDeque<String>,
    /// The number of rounds that the job has reported.
    rounds: u64,
    /// The time of the last report of a round.
    last: Instant,
    /// The longest time between two such reports.
    longest: Duration,
    stop: PathBuf,
}

impl Job {
    pub(crate) fn start(name: &str, scratch: &Path, mut command: Command) -> Result<Job, Box<dyn Error>> {
        let mark = format!("{}-{name}", std::process::id());
        let stop = scratch.join(name);
        command.env(MARK, &mark).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (sender, lines) = channel();
        let outputs: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|out| Box::new(out) as _),
            child.stderr.take().map(|out| Box::new(out) as _),
        ];
        for output in outputs.into_iter().flatten() {
            let sender = sender.clone();
            thread::Builder::new().spawn(move || {
                for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                    let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
                }
            })?;
        }
        let (last, longest) = (Instant::now(), Duration::ZERO);
        let said = VecDeque::new();
        Ok(Job { name: name.to_owned(), mark, child, lines, said, rounds: 0, last, longest, stop })
    }

    /// Checks that the job has made progress within the last [`PATIENCE`]. If it has not reported any round yet, waits
    /// for the first report.
    pub(crate) fn progresses(&mut self, attack: &str) -> Outcome {
        loop {
            let left = PATIENCE.saturating_sub(self.last.elapsed());
            let line = match self.rounds {
                0 => self.lines.recv_timeout(left).ok(),
                _ => self.lines.try_recv().ok(),
            };
            match line {
                Some(line) => self.take(&line, attack)?,
                None if left.is_zero() => {
                    let seconds = self.last.elapsed().as_secs_f64();
                    let (name, said) = (&self.name, &self.said);
                    return Err(
                        format!("{attack}: job {name} made no round for {seconds:.1} s: {said:?}").into()
                    );
                }
                None if self.rounds == 0 => {}
                None => return Ok(()),
            }
        }
    }

    fn take(&mut self, line: &str, attack: &str) -> Outcome {
        self.said.push_back(line.to_owned());
        if self.said.len() > SAID_MAX {
            self.said.pop_front();
        }
        if line.contains("panicked") || line.contains("harm:") {
            return Err(format!("{attack}: job {}: {line}", self.name).into());
        }
        if let Some(rounds) = line.strip_prefix("round ") {
            self.rounds = rounds.parse()?;
            self.longest = self.longest.max(self.last.elapsed());
            self.last = Instant::now();
        }
        Ok(())
    }

    /// Waits until the job prints a line that contains the text `what`.
    pub(crate) fn tells(&mut self, what: &str) -> Outcome {
        let begin = Instant::now();
        loop {
            match self.lines.recv_timeout(PATIENCE.saturating_sub(begin.elapsed())) {
                Ok(line) if line.contains(what) => return Ok(()),
                Ok(line) => self.take(&line, what)?,
                Err(_) => return Err(format!("job {} did not tell `{what}` in time", self.name).into()),
            }
        }
    }

    /// Returns a description of the job's progress.
    pub(crate) fn progress(&self) -> String {
        let longest = self.longest.as_secs_f64();
        format!("{} made {} rounds, the longest pause {longest:.2} s", self.name, self.rounds)
    }

    /// Makes the job's ranks stop.
    pub(crate) fn stop(&self) -> Outcome {
        Ok(fs::write(&self.stop, "")?)
    }

    /// Stops the job and checks its end: the honest ranks 0 and 1 report success, and no rank was killed by a signal.
    pub(crate) fn end(mut self) -> Outcome {
        self.stop()?;
        let begin = Instant::now();
        let mut said = Vec::new();
        while self.child.try_wait()?.is_none() {
            if begin.elapsed() > PATIENCE {
                self.child.kill()?;
                return Err(format!("job {} did not end: {:?}", self.name, self.said).into());
            }
            said.extend(self.lines.recv_timeout(Duration::from_millis(50)));
        }
        said.extend(self.lines.iter());
        said.iter().try_for_each(|line| self.take(line, "at its end"))?;
        let is_done = said.iter().any(|line| line == "done");
        let killed = said.iter().find(|line| line.contains("was killed by"));
        match (is_done, killed) {
            (true, None) => Ok(()),
            (_, why) => Err(format!("job {} did not end well: {why:?}, {:?}", self.name, self.said).into()),
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The number of a job's latest lines that are kept, and shown if the job was harmed.
const SAID_MAX: usize = 8;

const MARK: &str = "SAMITE_HOSTILE_MARK";

/// Returns the processes with this mark.
pub(crate) fn processes(mark: &str) -> Vec<i32> {
    let needle = format!("{MARK}={mark}");
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| read_to_string(&format!("/proc/{pid}/environ")).split('\0').any(|text| text == needle))
        .collect()
}

/// Returns the addresses at which processes with this mark listen.
pub(crate) fn listening_addresses(mark: &str) -> Vec<String> {
    let mut addresses = Vec::new();
    let listening: Vec<(u64, SocketAddr)> = ["tcp", "tcp6"].into_iter().flat_map(listeners).collect();
    for pid in processes(mark) {
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let Ok(link) = fs::read_link(entry.path()) else { continue };
            let link = link.to_string_lossy();
            let inode =
                link.strip_prefix("socket:[").and_then(|link| link.strip_suffix(']')?.parse::<u64>().ok());
            let found = listening.iter().find(|(listener, _)| Some(*listener) == inode);
            addresses.extend(found.map(|(_, address)| address.to_string()));
        }
    }
    addresses.sort();
    addresses.dedup();
    addresses
}

/// Returns the listening sockets in a table of the kernel (proc_pid_net(5)): the inode of each socket, and an address
/// at which it can be reached.
fn listeners(table: &str) -> Vec<(u64, SocketAddr)> {
    let text = read_to_string(&format!("/proc/self/net/{table}"));
    let listener = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (address, port) = words.get(1)?.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        let ip = match address.len() {
            8 => match u32::from_str_radix(address, 16).ok()?.to_le_bytes() {
                [0, 0, 0, 0] => Ipv4Addr::LOCALHOST.into(),
                bytes => Ipv4Addr::from(bytes).into(),
            },
            _ => Ipv6Addr::LOCALHOST.into(),
        };
        (*words.get(3)? == "0A").then_some((words.get(9)?.parse().ok()?, SocketAddr::new(ip, port)))
    };
    text.lines().filter_map(listener).collect()
}
