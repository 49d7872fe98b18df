//! Simulated jobs of ranks with a window: random programs of epochs, with kills and cancels, against a sequential
//! memory.
//!
//! The programs of all ranks are made before the run, in rounds that all ranks take part in. A rank waits for the
//! completion of an epoch at once, later, or at its end, as the seed chooses. Each origin has words of its own in the
//! part of each target, so the program order of its epochs decides their values, in blocking and in nonblocking
//! programs alike. Everything follows from the seed.

mod program;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;

use samite_fabric::layout::{Elements, Form};
use samite_fabric::link::{
    Cause, Config as LinkConfig, Engine, Error as LinkError, Group, Identity, Outcome, RequestId, Time,
    WorldRank, first_incarnation,
};
use samite_fabric::sim::{Config as NetConfig, Net, SimPort};
use samite_fabric::{Body as _, Memory, Port as _, Region, SplitMix64};
use samite_rma::{
    Action, Attached, ElementType, EpochId, Error, Name, Part, Places, Reduction, Target, WindowId, Windows,
};

use self::program::{Plan, Read, Step, WORD, Write};
use crate::ledger::require;
use crate::run::Summary;

const SECRET: [u8; 16] = [6; 16];
/// The longest time from a death until a rank gets the launcher's report, in nanoseconds.
const REPORT_NS: u64 = 200_000;
/// The longest time that a step of all ranks takes if packets arrive in it, in nanoseconds.
const STEP_NS: u64 = 100_000;
/// Virtual time within which a run must end.
const END_NS: u64 = 600_000_000_000;

struct Run {
    net: Net,
    rng: SplitMix64,
    plan: Plan,
    /// Boxed, because each poll takes its rank out and puts it back.
    ranks: Vec<Option<Box<Rank>>>,
    /// Pending reports of the launcher: the time, the rank that gets the report, and the rank that it is about.
    notices: BTreeSet<(u64, u32, u32)>,
    /// The results of the epochs of each rank, in the order in which they were opened.
    results: Vec<Vec<Option<Result<(), Error>>>>,
    /// The numbers of the epochs of fences of each rank, in `results`.
    fences: Vec<BTreeSet<usize>>,
    /// The results of reads: the rank, the number of the read in its program, and the words.
    reads: Vec<(usize, Read, Vec<u64>)>,
    /// The mean number of steps between two cancels or kills; 0 for none.
    cancels: u64,
    kills: u64,
    has_cancelled: bool,
    summary: Summary,
}

struct Rank {
    engine: Engine<SimPort, Windows>,
    /// The memory of the rank's part of the window.
    part: Region,
    window: WindowId,
    /// The name of the part, which is the same at all ranks, if the window is dynamic.
    attached: Option<Attached>,
    /// The next step of the program.
    next: usize,
    /// The epochs that are open: the number of the epoch in `results`, and its name.
    access: Option<(usize, EpochId)>,
    exposure: Option<(usize, EpochId)>,
    /// The requests for the completion of epochs.
    completions: Vec<(usize, RequestId)>,
    /// The reads under way, with the order in which their words arrive.
    reads: Vec<(Read, RequestId, Order)>,
    /// The request that the program waits for.
    waits: Option<RequestId>,
    /// The request that frees the window, when the program has ended.
    freed: Option<RequestId>,
}

/// Runs one seed.
pub(crate) fn run(seed: u64, verbose: bool) -> Result<Summary, String> {
    let mut run = Run::new(seed);
    if verbose {
        run.net.record();
    }
    let result = run.play();
    if verbose {
        run.net.take_trace().into_iter().for_each(|event| print_line(&format!("{event:?}")));
    }
    let epochs = run.results.iter().map(Vec::len).sum();
    let (hash, virtual_ns) = (run.net.trace_hash(), run.net.now_ns());
    result.map(|()| Summary { hash, virtual_ns, epochs, ..run.summary })
}

#[expect(clippy::print_stdout, reason = "a program for the terminal")]
fn print_line(text: &str) {
    println!("{text}");
}

fn link_config() -> LinkConfig {
    LinkConfig {
        credit_max: 1 << 20,
        window_min: 1 << 16,
        window_max: 1 << 20,
        questions_max: 50,
        answers_max: 100,
        quarantine_max: 0,
        gathered_max: 0,
        registered_max: 4 << 10,
        gathered_ns: 0,
    }
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = SplitMix64::new(seed ^ 0x726d_6100);
        let mut net_config = NetConfig::adverse(&mut rng);
        // Each kill is known to the launcher, and the network loses nothing else.
        net_config.moves = false;
        let net = Net::new(rng.next_u64(), net_config);
        let plan = Plan::new(&mut rng);
        let size = plan.size;
        let cancels = [0, 0, 100, 20][rng.below(4) as usize];
        let kills = [0, 0, 2000, 300][rng.below(4) as usize];
        let ranks = (0..size).map(|rank| Some(Box::new(Rank::new(&net, rank, &plan)))).collect();
        Self {
            net,
            rng,
            plan,
            ranks,
            notices: BTreeSet::new(),
            results: vec![Vec::new(); size as usize],
            fences: vec![BTreeSet::new(); size as usize],
            reads: Vec::new(),
            cancels,
            kills,
            has_cancelled: false,
            summary: Summary::default(),
        }
    }

    fn play(&mut self) -> Result<(), String> {
        let mut idle = 0;
        while !self.is_over() || idle < 3 {
            if self.kills > 0 && self.rng.below(self.kills) == 0 {
                self.kill();
            }
            if self.cancels > 0 && self.rng.below(self.cancels) == 0 {
                self.cancel();
            }
            let events = self.step()?;
            let moved = self.pass_time(events > 0);
            idle = if events == 0 && !moved { idle + 1 } else { 0 };
            require(self.net.now_ns() < END_NS, || format!("it does not end: {}", self.state()))?;
            require(idle < 10_000, || format!("it hangs: {}", self.state()))?;
        }
        self.check()
    }

    fn living(&self) -> impl Iterator<Item = &Rank> {
        self.ranks.iter().flatten().map(Box::as_ref)
    }

    fn is_over(&self) -> bool {
        let is_over = |rank: &Rank| rank.freed.is_some_and(|freed| rank.has_ended(freed));
        self.living().all(is_over)
    }

    fn state(&self) -> String {
        let of = |(at, rank): (usize, &Option<Box<Rank>>)| {
            let Some(rank) = rank else { return format!("rank {at} is dead") };
            let step = self.plan.programs[at].get(rank.next);
            let requests = rank.completions.iter().map(|(_, request)| request).chain(&rank.freed);
            let windows = rank.engine.stack();
            let awaited: Vec<_> =
                requests.map(|request| windows.awaited(rank.engine.link(), *request)).collect();
            format!("rank {at} at step {} {step:?} awaits {awaited:?}", rank.next)
        };
        self.ranks.iter().enumerate().map(of).collect::<Vec<_>>().join("; ")
    }

    /// Kills a rank, but not the last one.
    fn kill(&mut self) {
        let victim = self.rng.below(self.ranks.len() as u64) as u32;
        let living = self.ranks.iter().flatten().count();
        if living < 2 || self.is_over() || self.ranks[victim as usize].take().is_none() {
            return;
        }
        self.net.note(format!("rank {victim} is killed"));
        self.net.kill(victim);
        self.summary.killed += 1;
        for whom in 0..self.ranks.len() as u32 {
            self.notices.insert((self.net.now_ns() + self.rng.below(REPORT_NS), whom, victim));
        }
    }

    /// Cancels a pending completion of a random rank.
    fn cancel(&mut self) {
        let at = self.rng.below(self.ranks.len() as u64) as usize;
        let Some(rank) = &mut self.ranks[at] else { return };
        let number = self.rng.below(rank.completions.len() as u64) as usize;
        let Some(&(_, request)) = rank.completions.get(number) else { return };
        if rank.has_ended(request) {
            return;
        }
        self.net.note(format!("rank {at} cancels {request:?}"));
        let (out, windows) = rank.engine.parts();
        windows.cancel(out.link, request);
        rank.engine.drive(&mut ());
        self.has_cancelled = true;
        self.summary.unmatched += 1;
    }

    /// Polls the ranks in a random order, and lets each take the next step of its program. Returns the number of
    /// events.
    fn step(&mut self) -> Result<usize, String> {
        let (mut events, now) = (0, self.net.now_ns());
        while self.notices.first().is_some_and(|notice| notice.0 <= now) {
            let Some((_, whom, about)) = self.notices.pop_first() else { break };
            self.tell(whom, about)?;
            events += 1;
        }
        let first = self.rng.below(self.ranks.len() as u64) as usize;
        for at in 0..self.ranks.len() {
            let index = (first + at) % self.ranks.len();
            let Some(mut rank) = self.ranks[index].take() else { continue };
            if self.rng.below(4) == 0 {
                let (out, windows) = rank.engine.parts();
                windows.urge(out.link);
            }
            let polled = rank.engine.poll(Time::from_nanos(now), &mut ());
            events += polled.map_err(|error| format!("{error:?}"))?;
            for wanted in rank.engine.wanted().collect::<Vec<_>>() {
                self.notices.insert((now + self.rng.below(REPORT_NS), index as u32, wanted.0));
            }
            let advanced = self.advance(index, &mut rank);
            rank.engine.check_invariants();
            rank.engine.stack().check_invariants();
            self.ranks[index] = Some(rank);
            events += usize::from(advanced?);
        }
        Ok(events)
    }

    /// Gives a rank the address of another one, or reports that it is dead.
    fn tell(&mut self, whom: u32, about: u32) -> Result<(), String> {
        let is_alive = self.ranks[about as usize].is_some();
        let Some(listener) = &mut self.ranks[whom as usize] else { return Ok(()) };
        let incarnation = first_incarnation(&SECRET, WorldRank(about));
        let told = match is_alive {
            true => listener.engine.introduce(WorldRank(about), incarnation, self.net.address(about)),
            false => {
                let cause = Cause::Died("killed".into());
                listener.engine.peer_failed(WorldRank(about), Some(incarnation), cause)
            }
        };
        told.map_err(|error| format!("{error:?}"))
    }

    /// Collects the requests that have ended, and takes the next step of a rank's program. Returns false if the rank
    /// waits.
    fn advance(&mut self, at: usize, rank: &mut Rank) -> Result<bool, String> {
        self.collect(at, rank)?;
        if rank.waits.take_if(|waits| rank.engine.stack().outcome(*waits) == Outcome::Ready).is_none()
            && rank.waits.is_some()
        {
            return Ok(false);
        }
        let Some(step) = self.plan.programs[at].get(rank.next).cloned() else {
            return self.finish(rank);
        };
        rank.next += 1;
        self.take(at, rank, step)?;
        Ok(true)
    }

    /// Frees the window when all requests have ended.
    fn finish(&mut self, rank: &mut Rank) -> Result<bool, String> {
        let is_quiet = rank.completions.is_empty() && rank.reads.is_empty();
        if !is_quiet || rank.freed.is_some() {
            return Ok(false);
        }
        let (out, windows) = rank.engine.parts();
        let freed = windows.free(out.link, rank.window, Time::NEVER);
        rank.freed = Some(freed.map_err(|error| format!("{error:?}"))?);
        rank.engine.drive(&mut ());
        Ok(true)
    }

    fn collect(&mut self, at: usize, rank: &mut Rank) -> Result<(), String> {
        let windows = rank.engine.stack_mut();
        let mut kept = Vec::new();
        for (epoch, request) in std::mem::take(&mut rank.completions) {
            match windows.collect(request) {
                Some(completion) => self.results[at][epoch] = Some(completion.result),
                None => kept.push((epoch, request)),
            }
        }
        rank.completions = kept;
        let mut kept = Vec::new();
        for (read, request, order) in std::mem::take(&mut rank.reads) {
            match windows.collect(request) {
                Some(completion) if completion.result.is_ok() => {
                    let memory = completion.memory.ok_or("a read without memory")?;
                    let mut bytes = vec![0; memory.len()];
                    memory.readable().copy_to(&mut bytes);
                    let words = bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
                    let mut words: Vec<_> = words.collect();
                    order.restore(&mut words);
                    self.reads.push((at, read, words));
                    self.summary.received += 1;
                }
                Some(_) => self.summary.unknown += 1,
                None => kept.push((read, request, order)),
            }
        }
        rank.reads = kept;
        Ok(())
    }

    fn take(&mut self, at: usize, rank: &mut Rank, step: Step) -> Result<(), String> {
        let window = rank.window;
        let number = self.results[at].len();
        let (mut out, windows) = rank.engine.parts();
        out.link.set_now(Time::from_nanos(self.net.now_ns()));
        let link = &mut *out.link;
        let failed = |error: Error| format!("rank {at}, {step:?}: {error}");
        match &step {
            Step::Post(origins) => {
                rank.exposure = Some((number, windows.post(link, window, origins).map_err(failed)?));
                self.results[at].push(None);
            }
            Step::Start(targets) => {
                rank.access = Some((number, windows.start(link, window, targets).map_err(failed)?));
                self.results[at].push(None);
            }
            Step::Lock(target, kind) => {
                rank.access = Some((number, windows.lock(link, window, *target, *kind).map_err(failed)?));
                self.results[at].push(None);
            }
            Step::LockAll => {
                rank.access = Some((number, windows.lock_all(link, window).map_err(failed)?));
                self.results[at].push(None);
            }
            Step::Fence(assertions, waits) => {
                let fenced = windows.fence(link, window, *assertions, Time::NEVER).map_err(failed)?;
                let before = rank.access.take();
                if let Some(request) = fenced.completion {
                    let (epoch, _) = before.unwrap_or_else(|| {
                        self.results[at].push(None);
                        (number, EpochId::default())
                    });
                    rank.completions.push((epoch, request));
                    rank.waits = waits.then_some(request);
                }
                if let Some(epoch) = fenced.epoch {
                    self.fences[at].insert(self.results[at].len());
                    rank.access = Some((self.results[at].len(), epoch));
                    self.results[at].push(None);
                }
            }
            Step::CloseAccess(waits) | Step::CloseExposure(waits) => {
                let is_access = matches!(step, Step::CloseAccess(_));
                let open = if is_access { &mut rank.access } else { &mut rank.exposure };
                let (epoch, id) = open.take().ok_or("no epoch is open")?;
                let request = windows.close(link, id, Time::NEVER).map_err(failed)?;
                rank.completions.push((epoch, request));
                rank.waits = waits.then_some(request);
            }
            Step::Flush(target) => {
                let (_, id) = rank.access.ok_or("no epoch is open")?;
                match windows.flush(link, id, *target, Time::NEVER) {
                    Ok(request) => windows.detach(request),
                    Err(error) => may_fail(error)?,
                }
            }
            Step::Write(write) => self.write(at, rank, *write)?,
            Step::Sum(target, word) => {
                let (_, id) = rank.access.ok_or("no epoch is open")?;
                let action = Action::Accumulate { op: Reduction::Sum, element: ElementType::U64 };
                let (target, memory) = (places(rank.attached, *target, *word), Memory::new(vec![1_u64]));
                windows
                    .operate(&mut out, id, target, action, memory, None)
                    .map_or_else(may_fail, |_| Ok(()))?;
            }
            Step::Read(read) => {
                let (_, id) = rank.access.ok_or("no epoch is open")?;
                let place = self.plan.place(read.origin, read.first);
                let target = places(rank.attached, read.target, place);
                let (is_scattered, order) = (self.rng.below(2) == 0, Order::random(&mut self.rng));
                let memory = if is_scattered { scattered(read.count) } else { words(read.count) };
                let form = order.form(read.count);
                let places = form.as_ref().map_or(target, |form| target.with_form(form));
                match windows.operate(&mut out, id, places, Action::Get, memory, None) {
                    Ok(request) => {
                        let request = request.ok_or("a read without a request")?;
                        rank.reads.push((*read, request, order));
                    }
                    Err(error) => may_fail(error)?,
                }
            }
        }
        rank.engine.drive(&mut ());
        Ok(())
    }

    fn write(&mut self, at: usize, rank: &mut Rank, write: Write) -> Result<(), String> {
        let (epoch, id) = rank.access.ok_or("no epoch is open")?;
        let origin = WorldRank(at as u32);
        let target = places(rank.attached, write.target, self.plan.place(origin, write.first));
        let mut words: Vec<u64> = (0..write.count).map(|index| write.value + index).collect();
        let order = Order::random(&mut self.rng);
        order.arrange(&mut words);
        let form = order.form(write.count);
        let places = form.as_ref().map_or(target, |form| target.with_form(form));
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let is_slice = self.rng.below(2) == 0;
        let (mut out, windows) = rank.engine.parts();
        let started = match is_slice.then(|| windows.try_write(&mut out, id, places, Action::Put, &bytes)) {
            Some(Ok(true)) => Ok(None),
            Some(Err(error)) => Err(error),
            _ => windows.operate(&mut out, id, places, Action::Put, Memory::new(words), None),
        };
        started.map_or_else(may_fail, |_| Ok(()))?;
        self.plan.writes[at][write.number].epoch = Some(epoch);
        self.summary.messages += 1;
        Ok(())
    }

    /// Moves the clock to the next event. Returns false if there is none. A step that had events takes at most
    /// [`STEP_NS`]: a port may have more packets, and no deadline passes before the rank has taken them.
    fn pass_time(&mut self, had_events: bool) -> bool {
        let now = self.net.now_ns();
        let due = |rank: &Rank| {
            let due = rank.engine.due();
            (due > Time::from_nanos(now) && due != Time::NEVER).then_some(due.as_nanos())
        };
        let due = if self.is_over() { None } else { self.living().filter_map(due).min() };
        let notice = self.notices.first().map(|notice| notice.0.max(now));
        let next = [self.net.next_ns(), due, notice].into_iter().flatten().min();
        let latest = if had_events { now + STEP_NS } else { u64::MAX };
        next.inspect(|&next| self.net.advance_to(next.min(latest))).is_some()
    }

    // The check of the memory.

    fn check(&self) -> Result<(), String> {
        for (at, rank) in self.ranks.iter().enumerate().filter_map(|(at, rank)| Some((at, rank.as_ref()?))) {
            let windows = rank.engine.stack();
            // The request that freed the window is left.
            require(windows.is_empty() && windows.pending() == 1 && windows.recorded() == 0, || {
                format!("rank {at} has {} requests and {} bytes left", windows.pending(), windows.recorded())
            })?;
            let (registrations, idle) =
                (rank.engine.port().registrations(), rank.engine.link().registered().idle);
            require(registrations == idle, || {
                format!("rank {at} has {registrations} registrations left, and {idle} idle slabs")
            })?;
            let (used, (_, held)) = (rank.engine.link().registered().used, rank.engine.link().quarantined());
            require(used == 0 && held == 0, || {
                format!("rank {at} uses {used} slabs, and {held} bytes are held")
            })?;
            for (epoch, result) in self.results[at].iter().enumerate() {
                if let Some(Err(error)) = result {
                    self.check_error(error).map_err(|why| format!("rank {at}, epoch {epoch}: {why}"))?;
                }
            }
        }
        let last = self.plan.last_reads();
        let ends = last.iter().filter_map(|read| {
            let owner = self.ranks[read.target.index()].as_ref()?;
            let place = self.plan.place(read.origin, read.first) as usize * WORD;
            let mut bytes = vec![0; read.count as usize * WORD];
            owner.part.copy_out(place, &mut bytes).ok()?;
            let words = bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
            Some((read.target.index(), *read, words))
        });
        for (at, read, words) in self.reads.iter().cloned().chain(ends) {
            self.check_read(&read, &words).map_err(|why| format!("rank {at}, {read:?}: {why}"))?;
        }
        self.check_sums()
    }

    fn is_dead(&self, rank: WorldRank) -> bool {
        self.ranks[rank.index()].is_none()
    }

    fn check_error(&self, error: &Error) -> Result<(), String> {
        let is_permitted = match error {
            Error::Link(LinkError::PeerFailed { rank, .. }) => self.is_dead(*rank),
            Error::Link(LinkError::Cancelled { .. }) => self.has_cancelled,
            Error::Aborted { .. } => self.has_cancelled || self.summary.killed > 0,
            _ => false,
        };
        require(is_permitted, || error.to_string())
    }

    /// Checks words that were read: each is the value of the last write before the read that was carried out for
    /// certain, or of a write between the two whose epoch ended with an error.
    fn check_read(&self, read: &Read, words: &[u64]) -> Result<(), String> {
        if self.is_dead(read.origin) || self.is_dead(read.target) {
            return Ok(());
        }
        let of_origin = &self.plan.writes[read.origin.index()];
        // After a failure fences do not wait, so they do not separate the rounds of different ranks.
        let orders_all = self.summary.killed == 0 || self.fences.iter().all(BTreeSet::is_empty);
        for (word, found) in (read.first..).zip(words) {
            let mut permitted = vec![0];
            let writes = of_origin.iter().filter(|write| write.target == read.target && write.covers(word));
            for write in writes {
                let (is_earlier, value) = (write.number < read.after, write.value + word - write.first);
                if is_earlier && self.is_certain(read.origin, write) {
                    permitted.clear();
                }
                if is_earlier || !orders_all {
                    permitted.push(value);
                }
            }
            require(permitted.contains(found), || {
                format!("word {word} is {found}, and not of {permitted:?}")
            })?;
        }
        Ok(())
    }

    /// Returns true if a write between two living ranks has been carried out.
    fn is_certain(&self, origin: WorldRank, write: &Write) -> bool {
        let result = write.epoch.and_then(|epoch| self.results[origin.index()][epoch].as_ref());
        let of_fence = write.epoch.is_some_and(|epoch| self.fences[origin.index()].contains(&epoch));
        match result {
            Some(Ok(())) => true,
            // After a failure a fence does not wait, and the epoch that it begins permits no operations.
            Some(Err(Error::Link(LinkError::PeerFailed { .. }))) if of_fence => false,
            // Operations with other targets than the failed one go on.
            Some(Err(Error::Link(LinkError::PeerFailed { .. }))) => !self.has_cancelled,
            // The epoch of the last fence has no request.
            None => !self.has_cancelled && self.summary.killed == 0,
            Some(Err(_)) => false,
        }
    }

    fn check_sums(&self) -> Result<(), String> {
        for target in 0..self.plan.size {
            let Some(owner) = &self.ranks[target as usize] else { continue };
            let mut word = [0; WORD];
            let place = self.plan.sum_place() as usize * WORD;
            owner.part.copy_out(place, &mut word).map_err(|error| error.to_string())?;
            let (found, most) = (u64::from_ne_bytes(word), self.plan.sums[target as usize]);
            let is_exact = !self.has_cancelled && self.summary.killed == 0;
            require(if is_exact { found == most } else { found <= most }, || {
                format!("the sum at rank {target} is {found}, and not {most}")
            })?;
        }
        Ok(())
    }
}

/// Returns the place of a word of a rank's part.
fn places(attached: Option<Attached>, rank: WorldRank, word: u64) -> Places<'static> {
    match attached {
        None => Target { rank, displacement: word }.into(),
        Some(attached) => Places::from(Target { rank, displacement: word * WORD as u64 }).within(attached),
    }
}

/// Returns memory for words.
fn words(count: u64) -> Memory {
    Memory::new(vec![0_u64; count as usize])
}

/// The order of words in an operation.
#[derive(Clone, Copy)]
enum Order {
    Forwards,
    /// Each word is a run of its own.
    Backwards,
    /// The second half is before the first one, and each half is a run.
    Halves,
}

impl Order {
    fn random(rng: &mut SplitMix64) -> Self {
        [Self::Forwards, Self::Forwards, Self::Backwards, Self::Halves][rng.below(4) as usize]
    }

    /// Returns the places of the words in the target's part, unless they are contiguous.
    fn form(self, count: u64) -> Option<Form> {
        let half = count as usize / 2;
        let place = |words: usize| (words * WORD) as isize;
        let block = |words: usize| Form::block(words * WORD).expect("a few words");
        let form = match self {
            Self::Forwards => return None,
            Self::Backwards => {
                let words = block(1).strided(count as usize, -place(1)).expect("a few words");
                Form::list([(place((count as usize).saturating_sub(1)), &words)])
            }
            Self::Halves => {
                let halves = [(place(half), &block(count as usize - half)), (0, &block(half))];
                Form::list(halves)
            }
        };
        Some(form.expect("a few words"))
    }

    /// Brings words into this order.
    fn arrange(self, words: &mut [u64]) {
        match self {
            Self::Forwards => {}
            Self::Backwards => words.reverse(),
            Self::Halves => words.rotate_left(words.len() / 2),
        }
    }

    /// Brings words in this order into the order of their places.
    fn restore(self, words: &mut [u64]) {
        match self {
            Self::Halves => words.rotate_right(words.len() / 2),
            order => order.arrange(words),
        }
    }
}

/// Returns memory for words with gaps between them.
fn scattered(count: u64) -> Memory {
    let form = Form::block(WORD).and_then(|word| word.strided(count as usize, 2 * WORD as isize));
    let memory =
        Memory::scattered::<Vec<u64>>(words(2 * count), form.expect("a form"), WORD, Elements::BYTES);
    memory.expect("the form lies within the memory")
}

/// Accepts an error of an operation whose target has failed.
fn may_fail(error: Error) -> Result<(), String> {
    match error {
        Error::Link(LinkError::PeerFailed { .. }) => Ok(()),
        error => Err(error.to_string()),
    }
}

impl Rank {
    fn new(net: &Net, rank: u32, plan: &Plan) -> Self {
        let incarnation = first_incarnation(&SECRET, WorldRank(rank));
        let identity = Identity { rank: WorldRank(rank), size: plan.size, incarnation, secret: SECRET };
        // Puts and gets are short and few at a time, so that operations consist of several.
        let attached_max = plan.attached_max;
        let config = samite_rma::Config {
            put_chunk: 1000,
            copy_chunk: 600,
            puts_max: 3,
            attached_max,
            ..samite_rma::Config::default()
        };
        let windows = Windows::new(config);
        let mut engine = Engine::new(net.start(rank), identity, link_config(), windows);
        engine.expect_word();
        let region = match engine.port().caps().map && !plan.is_dynamic {
            true => {
                Region::shared((plan.part() + 1) * WORD).expect("memory for a part and the word of its lock")
            }
            false => Region::new(Memory::new(vec![0_u64; plan.part()])),
        };
        let (out, windows) = engine.parts();
        let members = Group::range(WorldRank(0), plan.size);
        let len = plan.part() * WORD;
        let lock = NonZeroUsize::new(len).filter(|_| region.len() > len);
        let part = Part { len, lock, ..Part::whole(region.clone(), WORD as u32) };
        let name = Name { communicator: 1, number: 1 };
        let window = match plan.is_dynamic {
            true => windows.create_dynamic(out.link, name, members, plan.hints),
            false => windows.create(out.link, name, members, part, plan.hints),
        };
        let window = window.expect("the first window");
        let attached = plan.is_dynamic.then(|| windows.attach_memory(window, region.clone()));
        let attached = attached.transpose().expect("the window is dynamic");
        Self {
            engine,
            part: region,
            window,
            attached,
            next: 0,
            access: None,
            exposure: None,
            completions: Vec::new(),
            reads: Vec::new(),
            waits: None,
            freed: None,
        }
    }

    fn has_ended(&self, request: RequestId) -> bool {
        self.engine.stack().outcome(request) == Outcome::Ready
    }
}
