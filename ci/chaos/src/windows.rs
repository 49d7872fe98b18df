//! Epochs of windows while ranks are killed. Each rank has a part with a slot for each rank, two numbers that are
//! changed under an exclusive lock, and a number of tickets. After a round without failures each part must have the
//! written values. After a failure each element has its new or its old value, and the survivors make another window.

use std::time::Duration;

use samite::{
    AccessKind, Epoch, EpochKind, Error, LockKind, Rank, Request, Window, WindowHints, WindowOp, WindowPlace,
    WindowRegion,
};
use samite_fabric::SplitMix64;

use crate::report::now_ns;
use crate::survivors::{Calls, Survivors};

/// The numbers of elements of a slot.
const LENGTHS: [usize; 4] = [1, 30, 1000, 9000];

/// The longest time for which a rank holds a lock without a call.
const HELD_US: u64 = 1000;

/// How many numbers follow the slots of a part.
const NUMBERS: usize = 3;

/// The tickets that a rank takes in a round.
const TICKETS: u64 = 5;

/// Opens and closes epochs.
pub(crate) struct Windows {
    window: Option<Window<u64>>,
    /// This rank's region of a dynamic window.
    region: Option<WindowRegion>,
    /// The regions of all ranks of a dynamic window, once they are known.
    regions: Vec<WindowRegion>,
    /// The number of elements of a slot.
    len: usize,
    /// The round of the latest write to each slot of this rank's part, and of the write before; 0 if there was none.
    slots: Vec<[u64; 2]>,
    /// The expected numbers of this rank's part: the number under the lock, and the tickets.
    locked: u64,
    tickets: u64,
    round: u64,
    /// Random numbers of this rank alone.
    own: SplitMix64,
    is_well: bool,
    /// True if this rank has found the numbers under a lock to be different.
    is_torn: bool,
}

impl Windows {
    /// Returns the calls of a rank before the first round.
    pub(crate) fn new() -> Self {
        Self {
            window: None,
            region: None,
            regions: Vec::new(),
            len: 0,
            slots: Vec::new(),
            locked: 0,
            tickets: 0,
            round: 0,
            own: SplitMix64::new(0),
            is_well: true,
            is_torn: false,
        }
    }
}

/// The epochs of a round.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Fence,
    /// `start` and `post` with both neighbours in a ring.
    Neighbours,
    /// An exclusive lock at one rank.
    Lock(Rank),
    /// Shared locks at all ranks, and tickets of one.
    LockAll(Rank),
    /// The end of the window.
    Free,
}

impl Calls for Windows {
    fn round(&mut self, ranks: &mut Survivors<'_>, rng: &mut SplitMix64) -> bool {
        let place = Rank(rng.below(ranks.comm.size().into()) as u32);
        let kind = match rng.below(9) {
            0 | 1 => Kind::Fence,
            2 | 3 => Kind::Neighbours,
            4 | 5 => Kind::Lock(place),
            6 | 7 => Kind::LockAll(place),
            _ => Kind::Free,
        };
        self.round += 1;
        self.is_well = true;
        self.is_torn = false;
        let Some(window) = self.window.take() else { return true };
        self.expect(ranks, kind);
        if let Some(region) = self.region.filter(|_| self.regions.is_empty()) {
            let mut regions = vec![region; ranks.comm.size() as usize];
            let gathered = match ranks.comm.allgather(&[region], &mut regions) {
                // Another rank knows of a failure.
                Err(Error::Revoked) => None,
                gathered => self.ended(ranks, gathered),
            };
            if gathered.is_none() {
                self.window = Some(window);
                return false;
            }
            self.regions = regions;
        }
        match kind {
            Kind::Fence => self.fence(ranks, &window),
            Kind::Neighbours => self.neighbours(ranks, &window),
            Kind::Lock(target) => self.lock(ranks, &window, target),
            Kind::LockAll(root) => self.lock_all(ranks, &window, root),
            Kind::Free => {
                let part = window.free();
                self.ended(ranks, part);
                return self.is_well;
            }
        }
        self.window = Some(window);
        self.is_well
    }

    fn settle(&mut self, ranks: &mut Survivors<'_>, is_well: bool) -> Result<(), Error> {
        let Some(window) = &self.window else {
            // The round has freed it. After a failure the survivors make another one.
            return if is_well { self.remake(ranks) } else { Ok(()) };
        };
        if is_well && self.is_torn {
            ranks.report.troubles.push("two ranks have held an exclusive lock".to_owned());
        }
        let mut part = vec![0; self.slots.len() * self.len + NUMBERS];
        match self.region {
            None => window.read(0, &mut part)?,
            Some(region) => window.read((region, 0), &mut part)?,
        }
        self.check(ranks, &part, is_well);
        // The next round changes the part. No rank begins it before all have checked theirs.
        ranks.comm.agree(0).map(drop)
    }

    /// Frees the window, if there is one, and makes another one on the present communicator.
    fn renew(&mut self, ranks: &mut Survivors<'_>) -> Result<(), Error> {
        if let Some(window) = self.window.take() {
            let part = window.free();
            self.ended(ranks, part);
        }
        let mut rng = SplitMix64::new(ranks.seed ^ ranks.made << 16);
        self.own = SplitMix64::new(rng.next_u64() ^ u64::from(ranks.comm.rank().0) << 32);
        self.len = LENGTHS[rng.below(LENGTHS.len() as u64) as usize];
        self.remake(ranks)
    }
}

impl Windows {
    /// Makes a window in which nothing is written.
    fn remake(&mut self, ranks: &Survivors<'_>) -> Result<(), Error> {
        self.slots = vec![[0; 2]; ranks.comm.size() as usize];
        (self.locked, self.tickets) = (0, 0);
        (self.region, self.regions) = (None, Vec::new());
        let (len, hints) = (self.slots.len() * self.len + NUMBERS, WindowHints::NONE);
        let window = match ranks.made % 5 {
            0 => ranks.comm.allocate_window(len)?,
            1 => ranks.comm.window(vec![0; len])?,
            2 => {
                let window = ranks.comm.dynamic_window()?;
                self.region = Some(window.attach(vec![0; len])?);
                window
            }
            3 => ranks.comm.allocate_window_with(len, hints.aggregate())?,
            _ => ranks.comm.window_with(vec![0; len], hints.slices().aggregate().overtaking())?,
        };
        self.window = Some(window);
        Ok(())
    }

    /// Returns the place of an element of a rank's part.
    fn place(&self, rank: Rank, index: usize) -> WindowPlace {
        match self.regions.get(rank.index()) {
            Some(region) => (*region, index).into(),
            None => index.into(),
        }
    }

    /// Notes the writes of a round to this rank's part.
    fn expect(&mut self, ranks: &Survivors<'_>, kind: Kind) {
        let (rank, size) = (ranks.comm.rank(), ranks.comm.size());
        let writes = |origin: u32| match kind {
            Kind::Fence | Kind::LockAll(_) => true,
            Kind::Neighbours => around(rank, size).contains(&Rank(origin)),
            Kind::Lock(target) => target == rank,
            Kind::Free => false,
        };
        for (_, slot) in (0..size).zip(&mut self.slots).filter(|(origin, _)| writes(*origin)) {
            *slot = [self.round, slot[0]];
        }
        match kind {
            Kind::Lock(target) if target == rank => self.locked += u64::from(size),
            Kind::LockAll(root) if root == rank => self.tickets += u64::from(size) * TICKETS,
            _ => {}
        }
    }

    fn fence(&mut self, ranks: &mut Survivors<'_>, window: &Window<u64>) {
        let opened = window.fence();
        let Some(epoch) = self.ended(ranks, opened) else { return };
        for target in (0..ranks.comm.size()).map(Rank) {
            self.write(ranks, &epoch, target);
        }
        self.close(ranks, epoch);
    }

    fn neighbours(&mut self, ranks: &mut Survivors<'_>, window: &Window<u64>) {
        let around = around(ranks.comm.rank(), ranks.comm.size());
        let (exposure, access) = (window.post(&around), window.start(&around));
        let (exposure, access) = (self.ended(ranks, exposure), self.ended(ranks, access));
        if let Some(access) = access {
            for target in around {
                self.write(ranks, &access, target);
            }
            self.close(ranks, access);
        }
        if let Some(exposure) = exposure {
            self.close(ranks, exposure);
        }
    }

    /// Changes both numbers of a rank under its lock.
    fn lock(&mut self, ranks: &mut Survivors<'_>, window: &Window<u64>, target: Rank) {
        let opened = window.lock(target, LockKind::Exclusive);
        let Some(epoch) = self.ended(ranks, opened) else { return };
        self.write(ranks, &epoch, target);
        let flushed = epoch.iflush(target);
        if let Some(flush) = self.ended(ranks, flushed)
            && self.await_lock(ranks, flush)
        {
            let changed = self.change(&epoch, target);
            self.ended(ranks, changed);
        }
        self.close(ranks, epoch);
    }

    /// Waits until a lock is granted, and notes the time since the detection of a failure meanwhile. Returns true if it
    /// is granted.
    fn await_lock(&mut self, ranks: &mut Survivors<'_>, mut flush: Request<()>) -> bool {
        let mut detected_ns = None;
        let end = loop {
            if let Some(end) = flush.test() {
                break end;
            }
            if detected_ns.is_none() && ranks.comm.failed().is_ok_and(|failed| !failed.is_empty()) {
                detected_ns = Some(now_ns());
            }
            std::thread::yield_now();
        };
        let is_granted = self.ended(ranks, end.map_err(Error::from)).is_some();
        if let (true, Some(detected_ns)) = (is_granted, detected_ns) {
            ranks.report.passed_ns.push(now_ns() - detected_ns);
        }
        is_granted
    }

    /// Increases both numbers, which differ only if a rank was killed between the two writes. The second number may
    /// then be the older one.
    fn change(&mut self, epoch: &Epoch<'_, u64, samite::Lock>, target: Rank) -> Result<(), Error> {
        let at = self.slots.len() * self.len;
        let mut numbers = [0; 2];
        epoch.get(target, self.place(target, at), &mut numbers)?;
        self.is_torn |= numbers[0] != numbers[1];
        let next = numbers[0] + 1;
        epoch.put(target, self.place(target, at), &[next])?;
        epoch.flush(target)?;
        std::thread::sleep(Duration::from_micros(self.own.below(HELD_US)));
        epoch.put(target, self.place(target, at + 1), &[next])
    }

    fn lock_all(&mut self, ranks: &mut Survivors<'_>, window: &Window<u64>, root: Rank) {
        let opened = window.lock_all();
        let Some(epoch) = self.ended(ranks, opened) else { return };
        let at = self.slots.len() * self.len + 2;
        let mut last = None;
        for _ in 0..TICKETS {
            let ticket = epoch.fetch(root, self.place(root, at), 1, WindowOp::Sum);
            let Some(ticket) = self.ended(ranks, ticket) else { break };
            if last.is_some_and(|last| ticket <= last) {
                ranks.report.troubles.push(format!("ticket {ticket} of rank {root} follows {last:?}"));
            }
            last = Some(ticket);
        }
        for target in (0..ranks.comm.size()).map(Rank) {
            self.write(ranks, &epoch, target);
            let (slot, mut back) = (ranks.comm.rank().index() * self.len, vec![0; self.len]);
            let read =
                epoch.flush(target).and_then(|()| epoch.get(target, self.place(target, slot), &mut back));
            if self.ended(ranks, read).is_some()
                && back != self.slot(ranks.comm.rank().0, target.0, self.round)
            {
                ranks.report.troubles.push(format!("a flushed slot at rank {target} has other elements"));
            }
        }
        self.close(ranks, epoch);
    }

    /// Writes this rank's slot at a rank.
    fn write<K: AccessKind>(&mut self, ranks: &mut Survivors<'_>, epoch: &Epoch<'_, u64, K>, target: Rank) {
        let rank = ranks.comm.rank();
        let data = self.slot(rank.0, target.0, self.round);
        let at = self.place(target, rank.index() * self.len);
        let written = match self.own.below(2) {
            0 => epoch.put(target, at, &data),
            _ => epoch.accumulate(target, at, &data, WindowOp::Replace),
        };
        ranks.report.bytes += (self.len * size_of::<u64>()) as u64;
        self.ended(ranks, written);
    }

    fn close<K: EpochKind>(&mut self, ranks: &mut Survivors<'_>, epoch: Epoch<'_, u64, K>) {
        let closed = match self.own.below(2) {
            0 => epoch.close(),
            _ => epoch.iclose().and_then(|end| Ok(end.wait().map(drop)?)),
        };
        self.ended(ranks, closed);
    }

    /// Notes the end of a call. Only the failure of a rank is a permitted error.
    fn ended<T>(&mut self, ranks: &mut Survivors<'_>, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(value) => {
                ranks.report.received += 1;
                return Some(value);
            }
            Err(Error::PeerFailed { world_rank, cause, .. }) => ranks.note(world_rank, &cause.to_string()),
            Err(error) => ranks.report.troubles.push(format!("a call on a window ended with: {error}")),
        }
        ranks.report.errors += 1;
        self.is_well = false;
        None
    }

    /// Compares this rank's part with the writes of all ranks.
    fn check(&self, ranks: &mut Survivors<'_>, part: &[u64], is_well: bool) {
        let (rank, troubles) = (ranks.comm.rank().0, &mut ranks.report.troubles);
        let (slots, numbers) = part.split_at(self.slots.len() * self.len);
        for ((origin, found), &[new, old]) in (0..).zip(slots.chunks_exact(self.len)).zip(&self.slots) {
            let [new, old] = [new, old].map(|round| self.slot(origin, rank, round));
            let is_right =
                |index: usize| found[index] == new[index] || !is_well && found[index] == old[index];
            if !(0..self.len).all(is_right) {
                troubles.push(format!("round {}: the slot of rank {origin} has other elements", self.round));
            }
        }
        if is_well && numbers != [self.locked, self.locked, self.tickets] {
            let expected = [self.locked, self.locked, self.tickets];
            troubles.push(format!("round {}: {numbers:?} instead of {expected:?}", self.round));
        }
    }

    /// Returns the elements that a rank writes to its slot at another rank in a round.
    fn slot(&self, origin: u32, target: u32, round: u64) -> Vec<u64> {
        let key = round << 20 ^ u64::from(origin) << 10 ^ u64::from(target);
        let element = |index| SplitMix64::new(key ^ (index as u64) << 44).next_u64();
        (0..self.len).map(|index| if round == 0 { 0 } else { element(index) }).collect()
    }
}

/// Returns the neighbours of a rank in a ring, each once.
fn around(rank: Rank, size: u32) -> Vec<Rank> {
    let mut around = vec![Rank((rank.0 + 1) % size), Rank((rank.0 + size - 1) % size)];
    around.dedup();
    around
}
