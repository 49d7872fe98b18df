//! Simulated jobs of ranks with one window or two: random programs of epochs, with kills, cancels and deadlines, against
//! a sequential memory.
//!
//! The programs of all ranks are made before the run, in rounds that all ranks take part in. A rank has a program for
//! each window, and takes the steps of both side by side. It waits for the completion of an epoch at once, later, or at
//! its end, as the seed chooses. Each origin has words of its own in the part of each target, so the program order of its
//! epochs decides their values, in blocking and in nonblocking programs alike. Two words of each part are changed by all
//! ranks: one by sums and fetches, the other by swaps. Everything follows from the seed.

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

use self::program::{Fetch, Plan, Read, Step, WORD};
use crate::ledger::require;
use crate::run::Summary;

const SECRET: [u8; 16] = [6; 16];
/// The longest time from a death until a rank gets the launcher's report, in nanoseconds.
const REPORT_NS: u64 = 200_000;
/// The longest time that a step of all ranks takes if packets arrive in it, in nanoseconds.
const STEP_NS: u64 = 100_000;
/// The longest time from a deadline to the end of its request, in nanoseconds: while packets arrive, the link puts
/// deadlines off for up to a millisecond, until the next step.
const LATE_NS: u64 = 1_000_000 + STEP_NS;
/// The longest time from a call to its deadline, in nanoseconds.
const DEADLINE_NS: u64 = 1_000_000;
/// Virtual time within which a run must end.
const END_NS: u64 = 600_000_000_000;

struct Run {
    net: Net,
    rng: SplitMix64,
    windows: Vec<Window>,
    /// Boxed, because each poll takes its rank out and puts it back.
    ranks: Vec<Option<Box<Rank>>>,
    /// Pending reports of the launcher: the time, the rank that gets the report, and the rank that it is about.
    notices: BTreeSet<(u64, u32, u32)>,
    /// The mean number of steps between two cancels or kills, and of requests between two with a deadline; 0 for none.
    cancels: u64,
    kills: u64,
    deadlines: u64,
    summary: Summary,
}

/// The programs of all ranks on a window, and their results.
struct Window {
    plan: Plan,
    /// The results of the epochs of each rank, in the order in which they were opened.
    results: Vec<Vec<Option<Result<(), Error>>>>,
    /// The numbers of the epochs of fences of each rank, in `results`.
    fences: Vec<BTreeSet<usize>>,
    /// The results of reads: the rank, the read, and the words.
    reads: Vec<(usize, Read, Vec<u64>)>,
    /// The ones that were added: the rank, the target, and the number of the epoch. A fetch has no epoch here: only its
    /// result shows that it was carried out.
    ones: Vec<(usize, WorldRank, Option<usize>)>,
    /// The former values of fetches, and the rank of each.
    fetches: Vec<(usize, Fetch, u64)>,
    /// The swaps that were started.
    started: Vec<Swap>,
    /// The former values of swaps.
    swaps: Vec<(Swap, u64)>,
    /// The errors of operations, and the results of freeing the window.
    others: Vec<(usize, Result<(), Error>)>,
    /// Whether a request was cancelled, a request had a deadline, and one has ended early for these reasons.
    has_cancels: bool,
    has_deadlines: bool,
    has_ended_early: bool,
}

struct Rank {
    engine: Engine<SimPort, Windows>,
    /// What the rank has of each window.
    members: Vec<Member>,
}

/// What a rank has of a window.
struct Member {
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
    completions: Vec<Completion>,
    /// The operations under way that have a request.
    operations: Vec<(Operation, RequestId)>,
    /// The request that the program waits for.
    waits: Option<RequestId>,
    /// The request that frees the window, when the program has ended.
    freed: Option<RequestId>,
}

/// A request for the completion of an epoch.
struct Completion {
    epoch: usize,
    request: RequestId,
    deadline: Time,
    is_cancelled: bool,
}

/// A swap of a word that is 0 until the first swap. Its value is that of no other swap.
#[derive(Clone, Copy, Debug)]
struct Swap {
    target: WorldRank,
    value: u64,
}

/// An operation that has a request.
#[derive(Clone, Copy)]
enum Operation {
    /// Its words arrive in this order.
    Read(Read, Order),
    /// The number of the write.
    Write(usize),
    Fetch(Fetch),
    Swap(Swap),
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
    let epochs = run.windows.iter().flat_map(|window| &window.results).map(Vec::len).sum();
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

impl Window {
    fn new(plan: Plan) -> Self {
        let size = plan.size as usize;
        Self {
            plan,
            results: vec![Vec::new(); size],
            fences: vec![BTreeSet::new(); size],
            reads: Vec::new(),
            ones: Vec::new(),
            fetches: Vec::new(),
            started: Vec::new(),
            swaps: Vec::new(),
            others: Vec::new(),
            has_cancels: false,
            has_deadlines: false,
            has_ended_early: false,
        }
    }
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = SplitMix64::new(seed ^ 0x726d_6100);
        let mut net_config = NetConfig::adverse(&mut rng);
        // Each kill is known to the launcher, and the network loses nothing else.
        net_config.moves = false;
        let net = Net::new(rng.next_u64(), net_config);
        let size = match rng.below(60) {
            0 => 9 + rng.below(56),
            _ => 2 + rng.below(7),
        } as u32;
        let attached_max = [0, 500, 64 << 20][rng.below(3) as usize];
        let count = 1 + rng.below(3) / 2;
        let windows: Vec<_> = (0..count).map(|_| Window::new(Plan::new(&mut rng, size))).collect();
        let cancels = [0, 0, 100, 20][rng.below(4) as usize];
        let kills = [0, 0, 2000, 300][rng.below(4) as usize];
        let deadlines = [0, 0, 30, 4][rng.below(4) as usize];
        let rank = |rank| Some(Box::new(Rank::new(&net, rank, &windows, attached_max)));
        let ranks = (0..size).map(rank).collect();
        Self {
            net,
            rng,
            windows,
            ranks,
            notices: BTreeSet::new(),
            cancels,
            kills,
            deadlines,
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
                self.cancel()?;
            }
            let events = self.step()?;
            let moved = self.pass_time(events > 0);
            idle = if events == 0 && !moved { idle + 1 } else { 0 };
            require(self.net.now_ns() < END_NS, || format!("it does not end: {}", self.state()))?;
            require(idle < 10_000, || format!("it hangs: {}", self.state()))?;
        }
        self.collect_ends()?;
        self.check()
    }

    fn living(&self) -> impl Iterator<Item = &Rank> {
        self.ranks.iter().flatten().map(Box::as_ref)
    }

    fn is_over(&self) -> bool {
        self.living().all(Rank::is_over)
    }

    fn state(&self) -> String {
        let of = |(at, rank): (usize, &Option<Box<Rank>>)| {
            let Some(rank) = rank else { return format!("rank {at} is dead") };
            let of_window = |(window, member): (&Window, &Member)| {
                let step = window.plan.programs[at].get(member.next);
                let requests = member.completions.iter().map(|completion| &completion.request);
                let requests = requests.chain(&member.freed);
                let windows = rank.engine.stack();
                let awaited: Vec<_> =
                    requests.map(|request| windows.awaited(rank.engine.link(), *request)).collect();
                format!("at step {} {step:?} awaits {awaited:?}", member.next)
            };
            let windows: Vec<_> = self.windows.iter().zip(&rank.members).map(of_window).collect();
            format!("rank {at} {}", windows.join(", and "))
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

    /// Cancels a pending request of a random rank.
    fn cancel(&mut self) -> Result<(), String> {
        let at = self.rng.below(self.ranks.len() as u64) as usize;
        let Some(rank) = &mut self.ranks[at] else { return Ok(()) };
        let number = self.rng.below(rank.members.len() as u64) as usize;
        let Member { completions, operations, .. } = &mut rank.members[number];
        let which = self.rng.below((completions.len() + operations.len()) as u64) as usize;
        let request = match completions.get(which) {
            Some(completion) => completion.request,
            None => match operations.get(which - completions.len()) {
                Some((_, request)) => *request,
                None => return Ok(()),
            },
        };
        let (out, windows) = rank.engine.parts();
        if windows.outcome(request) == Outcome::Ready {
            return Ok(());
        }
        if let Some(completion) = completions.get_mut(which) {
            completion.is_cancelled = true;
        }
        self.net.note(format!("rank {at} cancels {request:?}"));
        windows.cancel(out.link, request);
        let has_ended = windows.outcome(request) == Outcome::Ready;
        rank.engine.drive(&mut ());
        self.windows[number].has_cancels = true;
        self.summary.unmatched += 1;
        require(has_ended, || format!("rank {at} waits for {request:?} after a cancel"))
    }

    /// Returns the deadline of a request. Most have none.
    fn deadline(&mut self) -> Time {
        match self.deadlines > 0 && self.rng.below(self.deadlines) == 0 {
            true => Time::from_nanos(self.net.now_ns() + self.rng.below(DEADLINE_NS)),
            false => Time::NEVER,
        }
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
            let advanced = (0..self.windows.len()).try_fold(false, |before, number| {
                Ok::<_, String>(self.advance(index, number, &mut rank)? || before)
            });
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

    /// Collects the requests on a window that have ended, and takes the next step of a rank's program. Returns false if
    /// the rank waits.
    fn advance(&mut self, at: usize, number: usize, rank: &mut Rank) -> Result<bool, String> {
        let Rank { engine, members } = rank;
        let member = &mut members[number];
        self.collect(at, number, engine.stack_mut(), member)?;
        if member.waits.take_if(|waits| engine.stack().outcome(*waits) == Outcome::Ready).is_none()
            && member.waits.is_some()
        {
            return Ok(false);
        }
        let Some(step) = self.windows[number].plan.programs[at].get(member.next).cloned() else {
            return finish(engine, member);
        };
        member.next += 1;
        self.take(at, number, engine, member, step)?;
        engine.drive(&mut ());
        Ok(true)
    }

    fn collect(
        &mut self,
        at: usize,
        number: usize,
        windows: &mut Windows,
        member: &mut Member,
    ) -> Result<(), String> {
        let (window, now) = (&mut self.windows[number], Time::from_nanos(self.net.now_ns()));
        let mut kept = Vec::new();
        for completion in std::mem::take(&mut member.completions) {
            let Completion { epoch, request, deadline, is_cancelled } = completion;
            let Some(ended) = windows.collect(request) else {
                require(now.since(deadline) <= LATE_NS, || {
                    format!("rank {at}: {request:?} waits {} ns after its deadline", now.since(deadline))
                })?;
                kept.push(completion);
                continue;
            };
            let is_permitted = match ended.result {
                Err(Error::TimedOut { .. }) => now >= deadline,
                Err(Error::Link(LinkError::Cancelled { .. })) => is_cancelled,
                _ => true,
            };
            require(is_permitted, || format!("rank {at}: {request:?} ended with {:?}", ended.result))?;
            window.has_ended_early |= is_early(&ended.result);
            window.results[at][epoch] = Some(ended.result);
        }
        member.completions = kept;
        let mut kept = Vec::new();
        for (operation, request) in std::mem::take(&mut member.operations) {
            let Some(completion) = windows.collect(request) else {
                kept.push((operation, request));
                continue;
            };
            if completion.result.is_err() {
                window.has_ended_early |= is_early(&completion.result);
                window.others.push((at, completion.result));
                self.summary.unknown += 1;
                if let Operation::Write(number) = operation {
                    window.plan.writes[at][number].is_cut_off = true;
                }
                continue;
            }
            self.summary.received += 1;
            let memory = completion.memory.ok_or("an operation without memory")?;
            let mut bytes = vec![0; memory.len()];
            memory.readable().copy_to(&mut bytes);
            let words = bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
            let mut words: Vec<_> = words.collect();
            match operation {
                Operation::Read(read, order) => {
                    order.restore(&mut words);
                    window.reads.push((at, read, words));
                }
                Operation::Write(_) => {}
                Operation::Fetch(fetch) => window.fetches.push((at, fetch, words[0])),
                Operation::Swap(swap) => window.swaps.push((swap, words[0])),
            }
        }
        member.operations = kept;
        Ok(())
    }

    /// Collects the requests that freed the windows.
    fn collect_ends(&mut self) -> Result<(), String> {
        for (at, rank) in self.ranks.iter_mut().enumerate() {
            let Some(Rank { engine, members }) = rank.as_deref_mut() else { continue };
            for (window, member) in self.windows.iter_mut().zip(members) {
                let freed = member.freed.and_then(|freed| engine.stack_mut().collect(freed));
                window.others.push((at, freed.ok_or("a window is not freed")?.result));
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        at: usize,
        number: usize,
        engine: &mut Engine<SimPort, Windows>,
        member: &mut Member,
        step: Step,
    ) -> Result<(), String> {
        let deadline = self.deadline();
        let Window { plan, results, fences, ones, started: swaps, has_deadlines, .. } =
            &mut self.windows[number];
        *has_deadlines |= deadline != Time::NEVER;
        let results = &mut results[at];
        let (id, epoch) = (member.window, results.len());
        let (mut out, windows) = engine.parts();
        out.link.set_now(Time::from_nanos(self.net.now_ns()));
        let link = &mut *out.link;
        let failed = |error: Error| format!("rank {at}, {step:?}: {error}");
        match &step {
            Step::Post(origins) => {
                member.exposure = Some((epoch, windows.post(link, id, origins).map_err(failed)?));
                results.push(None);
            }
            Step::Start(targets) => {
                member.access = Some((epoch, windows.start(link, id, targets).map_err(failed)?));
                results.push(None);
            }
            Step::Lock(target, kind) => {
                member.access = Some((epoch, windows.lock(link, id, *target, *kind).map_err(failed)?));
                results.push(None);
            }
            Step::LockAll => {
                member.access = Some((epoch, windows.lock_all(link, id).map_err(failed)?));
                results.push(None);
            }
            Step::Fence(assertions, waits) => {
                let fenced = windows.fence(link, id, *assertions, deadline).map_err(failed)?;
                let before = member.access.take();
                if let Some(request) = fenced.completion {
                    let (epoch, _) = before.unwrap_or_else(|| {
                        results.push(None);
                        (epoch, EpochId::default())
                    });
                    member.completions.push(Completion { epoch, request, deadline, is_cancelled: false });
                    member.waits = waits.then_some(request);
                }
                if let Some(epoch) = fenced.epoch {
                    fences[at].insert(results.len());
                    member.access = Some((results.len(), epoch));
                    results.push(None);
                }
            }
            Step::CloseAccess(waits) | Step::CloseExposure(waits) => {
                let is_access = matches!(step, Step::CloseAccess(_));
                let open = if is_access { &mut member.access } else { &mut member.exposure };
                let (epoch, id) = open.take().ok_or("no epoch is open")?;
                let request = windows.close(link, id, deadline).map_err(failed)?;
                member.completions.push(Completion { epoch, request, deadline, is_cancelled: false });
                member.waits = waits.then_some(request);
            }
            Step::Flush(target) => {
                let (_, id) = member.access.ok_or("no epoch is open")?;
                match windows.flush(link, id, *target, Time::NEVER) {
                    Ok(request) => windows.detach(request),
                    Err(error) => may_fail(error)?,
                }
            }
            Step::Write(write) => {
                let (epoch, id) = member.access.ok_or("no epoch is open")?;
                let place = plan.place(WorldRank(at as u32), write.first);
                let target = places(member.attached, write.target, place);
                let mut words: Vec<u64> = (0..write.count).map(|index| write.value + index).collect();
                let order = Order::random(&mut self.rng);
                order.arrange(&mut words);
                let form = order.form(write.count);
                let places = form.as_ref().map_or(target, |form| target.with_form(form));
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                let is_slice = self.rng.below(2) == 0;
                let has_request = !is_slice && self.rng.below(3) == 0;
                let written = is_slice.then(|| windows.try_write(&mut out, id, places, Action::Put, &bytes));
                let started = match written {
                    Some(Ok(true)) => Ok(None),
                    Some(Err(error)) => Err(error),
                    _ => {
                        let deadline = has_request.then_some(deadline);
                        windows.operate(&mut out, id, places, Action::Put, Memory::new(words), deadline)
                    }
                };
                plan.writes[at][write.number].epoch = Some(epoch);
                self.summary.messages += 1;
                match started {
                    Ok(request) => {
                        let of = |request| (Operation::Write(write.number), request);
                        member.operations.extend(request.map(of));
                    }
                    Err(error) => may_fail(error)?,
                }
            }
            Step::Sum(target, word) => {
                let (epoch, id) = member.access.ok_or("no epoch is open")?;
                let action = Action::Accumulate { op: Reduction::Sum, element: ElementType::U64 };
                let (at_target, memory) = (places(member.attached, *target, *word), Memory::new(vec![1_u64]));
                match windows.operate(&mut out, id, at_target, action, memory, None) {
                    Ok(_) => ones.push((at, *target, Some(epoch))),
                    Err(error) => may_fail(error)?,
                }
            }
            Step::Read(read) => {
                let target = places(member.attached, read.target, plan.place(read.origin, read.first));
                let (is_scattered, order) = (self.rng.below(2) == 0, Order::random(&mut self.rng));
                let memory = if is_scattered { scattered(read.count) } else { words(read.count) };
                let form = order.form(read.count);
                let places = form.as_ref().map_or(target, |form| target.with_form(form));
                let (_, id) = member.access.ok_or("no epoch is open")?;
                let started = windows.operate(&mut out, id, places, Action::Get, memory, Some(deadline));
                member.note(Operation::Read(*read, order), started)?;
            }
            Step::Fetch(fetch) => {
                let target = places(member.attached, fetch.target, plan.sum_place());
                let action = Action::GetAccumulate { op: Reduction::Sum, element: ElementType::U64 };
                let memory = Memory::new(vec![1_u64]);
                let (_, id) = member.access.ok_or("no epoch is open")?;
                let started = windows.operate(&mut out, id, target, action, memory, Some(deadline));
                ones.extend(started.is_ok().then_some((at, fetch.target, None)));
                member.note(Operation::Fetch(*fetch), started)?;
            }
            Step::Swap(target) => {
                let swap = Swap { target: *target, value: swaps.len() as u64 + 1 };
                let at_target = places(member.attached, *target, plan.swap_place());
                let action = Action::CompareSwap { element: ElementType::U64 };
                let memory = Memory::new(vec![0_u64, swap.value]);
                let (_, id) = member.access.ok_or("no epoch is open")?;
                let started = windows.operate(&mut out, id, at_target, action, memory, Some(deadline));
                swaps.push(swap);
                member.note(Operation::Swap(swap), started)?;
            }
        }
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
            require(windows.is_empty() && windows.pending() == 0 && windows.recorded() == 0, || {
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
        }
        self.windows.iter().enumerate().try_for_each(|(number, window)| {
            self.check_window(number, window).map_err(|why| format!("window {number}: {why}"))
        })
    }

    fn check_window(&self, number: usize, window: &Window) -> Result<(), String> {
        for (at, results) in window.results.iter().enumerate().filter(|(at, _)| self.ranks[*at].is_some()) {
            let has_ended = |result: &Option<_>| matches!(result, Some(Ok(())));
            require(!self.is_exact(window) || results.iter().all(has_ended), || {
                format!("not all epochs of rank {at} have succeeded: {results:?}")
            })?;
            for (epoch, result) in results.iter().enumerate() {
                if let Some(Err(error)) = result {
                    self.check_error(window, error)
                        .map_err(|why| format!("rank {at}, epoch {epoch}: {why}"))?;
                }
            }
        }
        for (at, result) in &window.others {
            if let Err(error) = result {
                self.check_error(window, error).map_err(|why| format!("an operation of rank {at}: {why}"))?;
            }
        }
        let last = window.plan.last_reads();
        let ends = last.iter().filter_map(|read| {
            let place = window.plan.place(read.origin, read.first);
            let words = (place..place + read.count).map(|word| self.word(number, read.target, word));
            Some((read.target.index(), *read, words.collect::<Option<Vec<_>>>()?))
        });
        for (at, read, words) in window.reads.iter().cloned().chain(ends) {
            self.check_read(window, &read, &words).map_err(|why| format!("rank {at}, {read:?}: {why}"))?;
        }
        for target in (0..window.plan.size).map(WorldRank).filter(|target| !self.is_dead(*target)) {
            self.check_sum(number, window, target)?;
            self.check_swaps(number, window, target)?;
        }
        Ok(())
    }

    /// Returns a word of the part of a rank, unless it is dead.
    fn word(&self, number: usize, rank: WorldRank, place: u64) -> Option<u64> {
        let mut word = [0; WORD];
        let part = &self.ranks[rank.index()].as_ref()?.members[number].part;
        part.copy_out(place as usize * WORD, &mut word).expect("the part has the word");
        Some(u64::from_ne_bytes(word))
    }

    fn is_dead(&self, rank: WorldRank) -> bool {
        self.ranks[rank.index()].is_none()
    }

    /// Returns true if nothing has disturbed the programs on a window.
    fn is_exact(&self, window: &Window) -> bool {
        !window.has_ended_early && self.summary.killed == 0
    }

    fn check_error(&self, window: &Window, error: &Error) -> Result<(), String> {
        let is_permitted = match error {
            Error::Link(LinkError::PeerFailed { rank, .. }) => self.is_dead(*rank),
            Error::Link(LinkError::Cancelled { .. }) => window.has_cancels,
            Error::TimedOut { .. } => window.has_deadlines,
            Error::Aborted { .. } => !self.is_exact(window),
            _ => false,
        };
        require(is_permitted, || error.to_string())
    }

    /// Checks words that were read: each is the value of the last write before the read that was carried out for
    /// certain, or of a later write that may have been carried out before the read.
    fn check_read(&self, window: &Window, read: &Read, words: &[u64]) -> Result<(), String> {
        if self.is_dead(read.target) {
            return Ok(());
        }
        let of_origin = &window.plan.writes[read.origin.index()];
        // After a failure fences do not wait, so they do not separate the rounds of different ranks.
        let orders_all = self.summary.killed == 0 || window.fences.iter().all(BTreeSet::is_empty);
        for (word, found) in (read.first..).zip(words) {
            let mut permitted = vec![0];
            let writes = of_origin.iter().filter(|write| write.target == read.target && write.covers(word));
            for write in writes {
                let (is_earlier, value) = (write.number < read.after, write.value + word - write.first);
                if is_earlier && !write.is_cut_off && self.is_certain(window, read.origin, write.epoch) {
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

    /// Returns true if the operations of an epoch with a living target have been carried out, except those whose own
    /// request has ended with an error.
    fn is_certain(&self, window: &Window, origin: WorldRank, epoch: Option<usize>) -> bool {
        if self.is_dead(origin) {
            return false;
        }
        let result = epoch.and_then(|epoch| window.results[origin.index()][epoch].as_ref());
        let of_fence = epoch.is_some_and(|epoch| window.fences[origin.index()].contains(&epoch));
        match result {
            Some(Ok(())) => true,
            // After a failure a fence does not wait, and the epoch that it begins permits no operations.
            Some(Err(Error::Link(LinkError::PeerFailed { .. }))) if of_fence => false,
            // Operations with other targets than the failed one go on.
            Some(Err(Error::Link(LinkError::PeerFailed { .. }))) => !window.has_ended_early,
            None | Some(Err(_)) => false,
        }
    }

    /// Checks the word of a target to which all ranks add ones. The former values that fetches have returned differ, and
    /// those of one origin grow.
    fn check_sum(&self, number: usize, window: &Window, target: WorldRank) -> Result<(), String> {
        let found = self.word(number, target, window.plan.sum_place()).ok_or("the target is dead")?;
        let ones = window.ones.iter().filter(|(_, of, _)| *of == target);
        let most = ones.clone().count();
        let is_certain = |(at, _, epoch): &&(usize, WorldRank, Option<usize>)| {
            self.is_certain(window, WorldRank(*at as u32), *epoch)
        };
        let of_target = window.fetches.iter().filter(|(_, fetch, _)| fetch.target == target);
        let mut fetched: Vec<_> = of_target.map(|(at, fetch, former)| (*at, fetch.number, *former)).collect();
        let least =
            if self.is_exact(window) { most } else { ones.filter(is_certain).count() + fetched.len() };
        require((least as u64..=most as u64).contains(&found), || {
            format!("the sum at rank {target} is {found}, and not {least} to {most}")
        })?;
        fetched.sort_unstable();
        let grows = fetched.is_sorted_by(|one, next| one.0 != next.0 || one.2 < next.2);
        let mut former: Vec<_> = fetched.iter().map(|(.., former)| *former).collect();
        former.sort_unstable();
        let differ = former.is_sorted_by(|one, next| one < next);
        let are_below = former.iter().all(|former| *former < found);
        require(differ && are_below && (grows || !window.plan.hints.reorder.is_empty()), || {
            format!("the fetches at rank {target}, where the sum is {found}, have returned {fetched:?}")
        })
    }

    /// Checks the word of a target that the first swap changes, and that no other swap does.
    fn check_swaps(&self, number: usize, window: &Window, target: WorldRank) -> Result<(), String> {
        let found = self.word(number, target, window.plan.swap_place()).ok_or("the target is dead")?;
        let started = window.started.iter().filter(|swap| swap.target == target);
        let swaps: Vec<_> = window.swaps.iter().filter(|(swap, _)| swap.target == target).collect();
        let winners: Vec<_> =
            swaps.iter().filter(|(_, former)| *former == 0).map(|(swap, _)| swap.value).collect();
        let has_returned = |value| swaps.iter().any(|(swap, _)| swap.value == value);
        let is_right = match winners[..] {
            // No swap has happened, or the one whose result was lost.
            [] => match found {
                0 => swaps.is_empty() && (!self.is_exact(window) || started.clone().next().is_none()),
                value => started.clone().any(|swap| swap.value == value) && !has_returned(value),
            },
            [winner] => found == winner,
            _ => false,
        };
        require(is_right && swaps.iter().all(|(_, former)| [0, found].contains(former)), || {
            format!("the swaps at rank {target} have returned {swaps:?}, and {found} is left")
        })
    }
}

/// Returns true if a request has ended early at this rank.
fn is_early(result: &Result<(), Error>) -> bool {
    matches!(result, Err(Error::TimedOut { .. } | Error::Link(LinkError::Cancelled { .. })))
}

/// Frees a window when all requests of a rank on it have ended.
fn finish(engine: &mut Engine<SimPort, Windows>, member: &mut Member) -> Result<bool, String> {
    let is_quiet = member.completions.is_empty() && member.operations.is_empty();
    if !is_quiet || member.freed.is_some() {
        return Ok(false);
    }
    let (out, windows) = engine.parts();
    let freed = windows.free(out.link, member.window, Time::NEVER);
    member.freed = Some(freed.map_err(|error| format!("{error:?}"))?);
    engine.drive(&mut ());
    Ok(true)
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
    fn new(net: &Net, rank: u32, windows: &[Window], attached_max: usize) -> Self {
        let size = windows[0].plan.size;
        let incarnation = first_incarnation(&SECRET, WorldRank(rank));
        let identity = Identity { rank: WorldRank(rank), size, incarnation, secret: SECRET };
        // Puts and gets are short and few at a time, so that operations consist of several.
        let config = samite_rma::Config {
            put_chunk: 1000,
            copy_chunk: 600,
            puts_max: 3,
            attached_max,
            ..samite_rma::Config::default()
        };
        let mut engine = Engine::new(net.start(rank), identity, link_config(), Windows::new(config));
        engine.expect_word();
        let members =
            (1..).zip(windows).map(|(number, window)| Member::new(&mut engine, number, &window.plan));
        let members = members.collect();
        Self { engine, members }
    }

    fn has_ended(&self, request: RequestId) -> bool {
        self.engine.stack().outcome(request) == Outcome::Ready
    }

    /// Returns true if all windows are freed.
    fn is_over(&self) -> bool {
        self.members.iter().all(|member| member.freed.is_some_and(|freed| self.has_ended(freed)))
    }
}

impl Member {
    fn new(engine: &mut Engine<SimPort, Windows>, number: u64, plan: &Plan) -> Self {
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
        let name = Name { communicator: 1, number };
        let window = match plan.is_dynamic {
            true => windows.create_dynamic(out.link, name, members, plan.hints),
            false => windows.create(out.link, name, members, part, plan.hints),
        };
        let window = window.expect("its number is new");
        let attached = plan.is_dynamic.then(|| windows.attach_memory(window, region.clone()));
        let attached = attached.transpose().expect("the window is dynamic");
        Self {
            part: region,
            window,
            attached,
            next: 0,
            access: None,
            exposure: None,
            completions: Vec::new(),
            operations: Vec::new(),
            waits: None,
            freed: None,
        }
    }

    /// Notes an operation that has a request, or whose target has failed.
    fn note(
        &mut self,
        operation: Operation,
        started: Result<Option<RequestId>, Error>,
    ) -> Result<(), String> {
        match started {
            Ok(request) => {
                self.operations.push((operation, request.ok_or("an operation without a request")?));
                Ok(())
            }
            Err(error) => may_fail(error),
        }
    }
}
