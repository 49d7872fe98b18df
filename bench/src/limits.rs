//! Limits: millions of communicators, pending operations and layouts, the memory of each, and the budgets.
//!
//! Two processes make the objects. The memory of an object is the growth of a rank's resident memory, divided by the
//! number of objects; the larger figure of the two ranks counts. The memory contains the handles that the program
//! holds. The objects must work: received messages are compared with the sent messages.

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use clap::ValueEnum;
use samite::bootstrap::Launch;
use samite::{Comm, Layout, Mode, Rank, Request, World};
use samite_launch::{self as launch, Options};

use crate::layouts::name;
use crate::memory::resident_bytes;

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct LimitsArgs {
    /// The number of communicators
    #[arg(long, value_name = "N", default_value_t = 3_000_000)]
    communicators: usize,
    /// The number of pending receives, and of pending sends
    #[arg(long, value_name = "N", default_value_t = 2_000_000)]
    operations: usize,
    /// The number of layouts
    #[arg(long, value_name = "N", default_value_t = 3_000_000)]
    layouts: usize,
    /// The transport
    #[arg(long, value_name = "T", default_value = "samite-shm")]
    transport: String,
    /// Run a rank of this job
    #[arg(long, hide = true, value_enum)]
    part: Option<Part>,
}

/// A measurement. Each is a job of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Communicators of both ranks.
    Communicators,
    /// Receives that wait for a message, and sends that wait for a receive.
    Operations,
    /// Irregular layouts.
    Layouts,
    /// Communicators up to a small budget.
    CommunicatorBudget,
    /// Messages without receives, up to a small budget.
    MessageBudget,
}

/// The maximum number of bytes of a communicator.
const COMMUNICATOR_MAX: f64 = 256.0;
/// The maximum number of bytes of a pending send or receive, without its buffer.
const OPERATION_MAX: f64 = 320.0;
/// The maximum number of bytes of a layout of [`BLOCKS`] blocks.
const LAYOUT_MAX: f64 = 256.0;

/// Blocks of a layout.
const BLOCKS: usize = 4;

/// The number of communicators whose creations are under way at the same time.
const BATCH: usize = 64;

/// The number of messages that are exchanged and compared after the objects exist.
const EXCHANGES: usize = 1_000;

/// Returns the settings of a job: budgets in which its objects fit or, for the last two parts, do not fit.
fn budgets(part: Part) -> Vec<(String, String)> {
    let settings: &[(&str, &str)] = match part {
        Part::Communicators | Part::Layouts => &[],
        Part::Operations => {
            &[("SAMITE_UNEXPECTED_MAX", "1G"), ("SAMITE_WINDOW_MAX", "1G"), ("SAMITE_ENVELOPES_MAX", "1G")]
        }
        Part::CommunicatorBudget => &[("SAMITE_COMMUNICATORS_MAX", &COMMUNICATORS_MAX.to_string())],
        Part::MessageBudget => &[("SAMITE_UNEXPECTED_MAX", "64K"), ("SAMITE_ENVELOPES_MAX", "64K")],
    };
    settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The maximum number of communicators in [`Part::CommunicatorBudget`].
const COMMUNICATORS_MAX: usize = 1000;

/// The number of messages of 64 bytes in [`Part::MessageBudget`]. Together they exceed the budget.
const MESSAGES: usize = 10_000;

type Failure = Box<dyn Error + Send + Sync>;

impl LimitsArgs {
    /// Starts the jobs or, if this process was started as a rank of a job, takes part in the job.
    ///
    /// # Errors
    /// An error to print.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        match (Launch::detect(&|name| std::env::var_os(name))?, self.part) {
            (Launch::Alone, _) => self.measure(),
            (_, part) => self.take_part(part.ok_or("a rank of this benchmark has --part")?),
        }
    }

    /// Runs the jobs.
    fn measure(&self) -> Result<ExitCode, Failure> {
        let Self { transport, .. } = self;
        say!(
            "two ranks over {transport}; bytes of resident memory for each object, at the rank that needs more"
        );
        say!(
            "{:<24} {:>10} {:>8} {:>8} {:>10} {:>10}",
            "",
            "objects",
            "bytes",
            "at most",
            "made in",
            "ended in"
        );
        let mut passed = true;
        for &part in Part::value_variants() {
            passed &= self.job(part)?;
        }
        Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn job(&self, part: Part) -> Result<bool, Failure> {
        let env = budgets(part);
        let mut args: Vec<_> = std::env::args_os().skip(1).collect();
        args.extend(["--part".into(), name(part).into()]);
        let transport = Some(self.transport.clone());
        let code =
            launch::run(Options { transport, args, env, ..Options::new(2, std::env::current_exe()?) })?;
        Ok(code == 0)
    }

    fn take_part(&self, part: Part) -> Result<ExitCode, Failure> {
        let world = samite::init()?;
        meet(world.comm())?;
        let passed = match part {
            Part::Communicators => communicators(&world, self.communicators)?,
            Part::Operations => operations(&world, self.operations)?,
            Part::Layouts => layouts(&world, self.layouts)?,
            Part::CommunicatorBudget => communicator_budget(&world)?,
            Part::MessageBudget => message_budget(&world)?,
        };
        Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// A row of the table.
struct Row {
    name: &'static str,
    objects: usize,
    /// The growth of this rank's memory in bytes.
    bytes: f64,
    at_most: f64,
    made_in: f64,
    ended_in: f64,
}

impl Row {
    /// Prints the row at rank 0, with the larger figure of the two ranks in each column. Returns true if an object
    /// takes at most the allowed number of bytes.
    fn print(mut self, comm: &Comm) -> Result<bool, Failure> {
        let mine = [self.bytes, self.made_in, self.ended_in];
        let mut theirs = [0.0; 3];
        comm.sendrecv(&mine, other(comm), ROW, &mut theirs, other(comm), ROW)?;
        [self.bytes, self.made_in, self.ended_in] = std::array::from_fn(|at| mine[at].max(theirs[at]));
        let Self { name, objects, bytes, at_most, made_in, ended_in } = self;
        let each = bytes / objects.max(1) as f64;
        let passed = each <= at_most;
        if comm.rank() == 0 {
            let verdict = if passed { "" } else { "  too many bytes" };
            say!(
                "{name:<24} {objects:>10} {each:>8.0} {at_most:>8.0} {made_in:>8.1} s {ended_in:>8.1} s{verdict}"
            );
        }
        Ok(passed)
    }
}

/// Tags of the benchmark's own messages, larger than any tag of a measured operation.
const ROW: u64 = 1 << 60;
const MEETING: u64 = ROW + 1;
const EXCHANGE: u64 = ROW + 2;

/// Creates communicators, exchanges messages in some of them, and drops them.
fn communicators(world: &World, count: usize) -> Result<bool, Failure> {
    let comm = world.comm();
    let mut all = Vec::with_capacity(count);
    let (begin, before) = (Instant::now(), resident()?);
    while all.len() < count {
        let batch = BATCH.min(count - all.len());
        let under_way: Vec<_> = (0..batch).map(|_| comm.idup()).collect::<Result<_, _>>()?;
        for creation in under_way {
            all.push(creation.wait()?);
        }
    }
    let (bytes, made_in) = (resident()? - before, begin.elapsed().as_secs_f64());
    exchange(&all)?;
    let begin = Instant::now();
    drop(all);
    let ended_in = begin.elapsed().as_secs_f64();
    exchange(std::slice::from_ref(comm))?;
    let (name, at_most) = ("communicators", COMMUNICATOR_MAX);
    Row { name, objects: count, bytes, at_most, made_in, ended_in }.print(comm)
}

/// Measures receives of rank 1 whose messages rank 0 has not sent yet, and synchronous sends of rank 0 whose receives
/// rank 1 has not posted yet. Then lets them end, and compares the messages.
fn operations(world: &World, count: usize) -> Result<bool, Failure> {
    let comm = world.comm();
    let (sender, tags) = (comm.rank() == 0, count as u64);
    // The buffers are allocated before the memory is measured, so they are not counted.
    let value = |tag: u64| tag.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let buffers = |fill: &dyn Fn(u64) -> u64| (0..tags).map(|tag| vec![fill(tag)]).collect::<Vec<_>>();
    let mut pending = Vec::with_capacity(count);
    let mut passed = true;

    let mut unused = if sender { Vec::new() } else { buffers(&|_| 0) }.into_iter();
    let (begin, before) = (Instant::now(), resident()?);
    for (tag, buffer) in (0..).zip(unused.by_ref()) {
        pending.push(comm.irecv(buffer, Rank(0), tag).map_err(|failed| failed.error)?);
    }
    let (bytes, made_in) = (resident()? - before, begin.elapsed().as_secs_f64());
    drop(unused);
    meet(comm)?;
    let begin = Instant::now();
    if sender {
        // The order differs from the order in which the receives were posted.
        let stride = coprime(tags);
        for number in 0..tags {
            let tag = (number * stride) % tags;
            comm.send(&[value(tag)], Rank(1), tag)?;
        }
    }
    for (tag, request) in (0..).zip(pending.drain(..)) {
        let received = request.wait().map_err(|failed| failed.error)?.buffer;
        if received != [value(tag)] {
            return Err(format!("the message with tag {tag} is {received:?}").into());
        }
    }
    meet(comm)?;
    let ended_in = begin.elapsed().as_secs_f64();
    let at_most = OPERATION_MAX;
    passed &=
        Row { name: "pending receives", objects: count, bytes, at_most, made_in, ended_in }.print(comm)?;

    // A synchronous send ends with its match, so no send ends before its receive is posted.
    let synchronous = comm.with_mode(Mode::Synchronous);
    let mut unused = if sender { buffers(&value) } else { Vec::new() }.into_iter();
    let (begin, before) = (Instant::now(), resident()?);
    for (tag, buffer) in (0..).zip(unused.by_ref()) {
        pending.push(synchronous.isend(buffer, Rank(1), tag).map_err(|failed| failed.error)?);
    }
    let (bytes, made_in) = (resident()? - before, begin.elapsed().as_secs_f64());
    drop(unused);
    meet(comm)?;
    let begin = Instant::now();
    if !sender {
        for tag in (0..tags).rev() {
            let mut received = [0];
            comm.recv(&mut received, Rank(0), tag)?;
            if received != [value(tag)] {
                return Err(format!("the message with tag {tag} is {received:?}").into());
            }
        }
    }
    for request in pending.drain(..) {
        request.wait().map_err(|failed| failed.error)?;
    }
    meet(comm)?;
    let ended_in = begin.elapsed().as_secs_f64();
    passed &= Row { name: "pending sends", objects: count, bytes, at_most, made_in, ended_in }.print(comm)?;
    exchange(std::slice::from_ref(comm))?;
    Ok(passed)
}

/// Makes irregular layouts, and exchanges messages with some of them.
fn layouts(world: &World, count: usize) -> Result<bool, Failure> {
    let comm = world.comm();
    let mut all = Vec::with_capacity(count);
    let (begin, before) = (Instant::now(), resident()?);
    for number in 0..count {
        all.push(Layout::<u64>::indexed(blocks(number))?);
    }
    let (bytes, made_in) = (resident()? - before, begin.elapsed().as_secs_f64());
    for number in some(count) {
        let (to, from) = (other(comm), other(comm));
        let words: Vec<u64> = (0..128).map(|word| word + number as u64).collect();
        let mut received = vec![0; words.len()];
        let layout = &all[number];
        if comm.rank() == 0 {
            comm.send_view(layout.of(&words)?, to, EXCHANGE)?;
            comm.recv_view(&mut layout.of_mut(&mut received)?, from, EXCHANGE)?;
        } else {
            comm.recv_view(&mut layout.of_mut(&mut received)?, from, EXCHANGE)?;
            comm.send_view(layout.of(&received)?, to, EXCHANGE)?;
        }
        let is_in =
            |word: usize| blocks(number).any(|(at, len)| (at as usize..at as usize + len).contains(&word));
        for (word, (&received, &sent)) in received.iter().zip(&words).enumerate() {
            if received != if is_in(word) { sent } else { 0 } {
                return Err(format!("word {word} of a message with layout {number} is {received}").into());
            }
        }
    }
    let begin = Instant::now();
    drop(all);
    let ended_in = begin.elapsed().as_secs_f64();
    let (name, at_most) = ("layouts of 4 blocks", LAYOUT_MAX);
    Row { name, objects: count, bytes, at_most, made_in, ended_in }.print(comm)
}

/// Creates communicators until the budget refuses one. The existing communicators must work after that, and after one
/// of them was dropped, another can be created.
fn communicator_budget(world: &World) -> Result<bool, Failure> {
    let comm = world.comm();
    let mut all = Vec::new();
    let refused = loop {
        match comm.dup() {
            Ok(duplicate) if all.len() < COMMUNICATORS_MAX => all.push(duplicate),
            refused => break refused,
        }
    };
    exchange(&all)?;
    let is_full = all.len() == COMMUNICATORS_MAX && matches!(refused, Err(samite::Error::Exhausted { .. }));
    all.pop();
    all.push(comm.dup()?);
    exchange(&all)?;
    meet(comm)?;
    if comm.rank() == 0 {
        let verdict = if is_full { "then Exhausted" } else { "then not Exhausted" };
        say!(
            "a budget of {COMMUNICATORS_MAX} communicators: {} were made, {verdict}; {EXCHANGES} messages were exchanged",
            all.len()
        );
    }
    Ok(is_full)
}

/// Sends messages without receives until the receiver's budget refuses one. The communicator must work after that.
fn message_budget(world: &World) -> Result<bool, Failure> {
    let comm = world.comm();
    let mut passed = true;
    if comm.rank() == 0 {
        let synchronous = comm.with_mode(Mode::Synchronous);
        let send = |tag| synchronous.isend(vec![tag; 8], Rank(1), tag).map_err(|failed| failed.error);
        let mut pending: Vec<Request<Vec<u64>>> = (0..MESSAGES as u64).map(send).collect::<Result<_, _>>()?;
        let mut ended = Vec::new();
        while ended.is_empty() {
            ended = pending.iter_mut().filter_map(Request::test).collect();
        }
        passed = ended
            .iter()
            .all(|end| matches!(end, Err(failed) if matches!(failed.error, samite::Error::Exhausted { .. })));
        let verdict = if passed { "Exhausted" } else { "another result" };
        // The drop cancels the sends that have not ended.
        drop(pending);
        say!(
            "a budget of 64 KiB for messages without receives, and {MESSAGES} messages: {verdict}; {EXCHANGES} messages were exchanged"
        );
    }
    meet(comm)?;
    exchange(std::slice::from_ref(comm))?;
    Ok(passed)
}

/// Returns the blocks of layout `number`, each with its first element and its length. They are at irregular distances
/// within 128 elements.
fn blocks(number: usize) -> impl Iterator<Item = (isize, usize)> {
    (0..BLOCKS).map(move |block| {
        let at = block * 32 + (number >> (3 * block)) % 8 * (block + 1) % 23;
        (at.cast_signed(), 1 + (number + block) % 7)
    })
}

/// Exchanges [`EXCHANGES`] messages with different contents, and compares the received with the sent contents. The
/// messages are spread evenly over the communicators.
fn exchange(comms: &[Comm]) -> Result<(), Failure> {
    for (turn, place) in some(comms.len()).enumerate() {
        let comm = &comms[place];
        let value = |rank: Rank| [place as u64, turn as u64, u64::from(rank.0)];
        let mut received = [0; 3];
        comm.sendrecv(&value(comm.rank()), other(comm), EXCHANGE, &mut received, other(comm), EXCHANGE)?;
        if received != value(other(comm)) {
            return Err(format!("communicator {place} has delivered {received:?}").into());
        }
    }
    Ok(())
}

/// Returns [`EXCHANGES`] indices below `count`, spread evenly. If `count` is smaller than that, indices repeat.
fn some(count: usize) -> impl Iterator<Item = usize> {
    (0..EXCHANGES).map(move |turn| turn * count / EXCHANGES)
}

/// Returns a number that has no common divisor with `count` except 1. It is about five eighths of `count`, so
/// successive multiples modulo `count` are far apart.
fn coprime(count: u64) -> u64 {
    let is_coprime = |number: &u64| {
        let (mut a, mut b) = (*number, count);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a == 1
    };
    (count * 5 / 8..).find(is_coprime).unwrap_or(1)
}

fn other(comm: &Comm) -> Rank {
    Rank(1 - comm.rank().0)
}

/// Waits for the other rank.
fn meet(comm: &Comm) -> Result<(), Failure> {
    comm.sendrecv(&[0_u8; 0], other(comm), MEETING, &mut [0_u8; 0], other(comm), MEETING)?;
    Ok(())
}

/// Returns the resident memory of this process in bytes.
fn resident() -> Result<f64, Failure> {
    Ok(resident_bytes()? as f64)
}
