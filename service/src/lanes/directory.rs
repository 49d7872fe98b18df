//! The launcher's reports, shared by the lanes of a rank.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::epoll;
use samite_control::{Figures, PeerStats};
use samite_fabric::Address;
use samite_os::alarm::Alarm;

use crate::runtime::{Directory, Notice};

/// Returns a directory for each lane. When one lane polls, it takes all notices of the launcher, puts the notices for
/// other lanes into the queues of these lanes, and wakes these lanes.
///
/// # Errors
/// The error of the system if the process has too many open files.
pub(crate) fn share(directory: Box<dyn Directory>, lanes: usize) -> io::Result<Vec<Box<dyn Directory>>> {
    if lanes == 1 {
        return Ok(vec![directory]);
    }
    let shares = (0..lanes).map(|_| Share::new()).collect::<io::Result<Vec<_>>>()?;
    let (tells_ends, tells_deaths) = (directory.tells_ends(), directory.tells_deaths());
    let mut watches = Vec::new();
    for share in &shares {
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let descriptors = [Some(share.alarm.as_fd()), directory.descriptor()];
        for descriptor in descriptors.into_iter().flatten() {
            epoll::add(&watch, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        watches.push(watch);
    }
    let shared = Shared { directory, shares, known: HashMap::new(), present: lanes };
    let shared = Arc::new(Mutex::new(shared));
    let of_lane = |(lane, watch)| {
        Box::new(OfLane { lane, watch, tells_ends, tells_deaths, shared: Arc::clone(&shared) })
            as Box<dyn Directory>
    };
    Ok(watches.into_iter().enumerate().map(of_lane).collect())
}

/// The directory of one lane.
struct OfLane {
    lane: usize,
    /// Readable when the launcher has a notice, or another lane has put a notice into this lane's queue.
    watch: OwnedFd,
    tells_ends: bool,
    tells_deaths: bool,
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    directory: Box<dyn Directory>,
    /// The state that is kept for each lane, by its number.
    shares: Vec<Share>,
    /// The known addresses of ranks that take part, with their incarnations.
    known: HashMap<u32, (u32, Address)>,
    /// The number of lanes that have not left.
    present: usize,
}

/// The state of one lane: the notices that it has not taken yet, and the figures that it reported most recently.
struct Share {
    news: VecDeque<Notice>,
    alarm: Alarm,
    /// The ranks whose address the lane has requested. The lane receives the addresses of their later incarnations too.
    requested: HashSet<u32>,
    figures: Figures,
    peers: Vec<PeerStats>,
}

impl Share {
    fn new() -> io::Result<Self> {
        Ok(Self {
            news: VecDeque::new(),
            alarm: Alarm::new()?,
            requested: HashSet::new(),
            figures: Figures::default(),
            peers: Vec::new(),
        })
    }

    fn post(&mut self, notice: Notice) {
        // The launcher asks for figures repeatedly. A lane that no thread uses does not answer, so its queue keeps one
        // question, and further questions are dropped.
        if matches!(notice, Notice::Asked { at_end: false })
            && self.news.iter().any(|news| matches!(news, Notice::Asked { at_end: false }))
        {
            return;
        }
        if self.news.is_empty() {
            self.alarm.ring();
        }
        // For each process only the latest notice that it was stopped or continued is kept, because there may be any
        // number of such notices.
        if let Notice::Stopped { rank, incarnation, .. } = notice {
            self.news.retain(|news| {
                !matches!(news, Notice::Stopped { rank: r, incarnation: i, .. } if (*r, *i) == (rank, incarnation))
            });
        }
        self.news.push_back(notice);
    }
}

impl Shared {
    /// Takes all notices from the launcher, and adds each to the queues of the lanes that it concerns.
    fn listen(&mut self) {
        while let Some(notice) = self.directory.poll() {
            match &notice {
                Notice::Address { rank, incarnation, address } => {
                    let rank = *rank;
                    self.known.insert(rank, (*incarnation, address.clone()));
                    let concerned = self.shares.iter_mut().filter(|share| share.requested.contains(&rank));
                    concerned.for_each(|share| share.post(notice.clone()));
                    continue;
                }
                Notice::Failed { rank, incarnation, .. } | Notice::Left { rank, incarnation }
                    if self.known.get(rank).is_some_and(|(known, _)| known == incarnation) =>
                {
                    self.known.remove(rank);
                }
                _ => {}
            }
            for share in &mut self.shares {
                // If the rank made the first contact with a lane, that lane has never requested the rank's address. The
                // lane needs the address of the next incarnation too, so the rank is added to the lane's requests here.
                if let Notice::Failed { rank, returns: true, .. } = notice {
                    share.requested.insert(rank);
                }
                share.post(notice.clone());
            }
        }
    }

    /// Records that a lane has left the job. Returns true if all lanes have left. If so, and if a lane has reported
    /// figures by peer, first reports the sums over all lanes to the launcher.
    fn leave(&mut self) -> bool {
        self.present = self.present.saturating_sub(1);
        if self.present == 0 && self.shares.iter().any(|share| !share.peers.is_empty()) {
            let (figures, peers) = self.sums();
            self.directory.tell(figures, &peers);
        }
        self.present == 0
    }

    /// Returns the sums of the figures that the lanes have reported, for the rank and for each peer.
    fn sums(&self) -> (Figures, Vec<PeerStats>) {
        let mut all = Figures::default();
        let mut peers: HashMap<u32, PeerStats> = HashMap::new();
        for Share { figures, peers: of_lane, .. } in &self.shares {
            add_figures(&mut all, figures);
            for peer in of_lane {
                add_peer(peers.entry(peer.rank).or_default(), peer);
            }
        }
        let mut peers: Vec<_> = peers.into_values().collect();
        peers.sort_unstable_by_key(|peer| peer.rank);
        (all, peers)
    }
}

/// Adds the figures of a lane to `all`. Of the oldest operations of both, the older is kept.
fn add_figures(all: &mut Figures, lane: &Figures) {
    let Figures {
        age_ns,
        sent,
        bytes_sent,
        received,
        bytes_received,
        operations,
        unexpected,
        unexpected_messages,
        unexpected_max,
        requests,
        queued,
        waited_ns,
        awaits,
    } = lane;
    all.age_ns = all.age_ns.max(*age_ns);
    all.sent = all.sent.wrapping_add(*sent);
    all.bytes_sent = all.bytes_sent.wrapping_add(*bytes_sent);
    all.received = all.received.wrapping_add(*received);
    all.bytes_received = all.bytes_received.wrapping_add(*bytes_received);
    all.operations = all.operations.wrapping_add(*operations);
    all.unexpected = all.unexpected.wrapping_add(*unexpected);
    all.unexpected_messages += unexpected_messages;
    all.unexpected_max = all.unexpected_max.max(*unexpected_max);
    all.requests += requests;
    all.queued += queued;
    all.waited_ns = all.waited_ns.saturating_add(*waited_ns);
    let age = |awaits: &Option<samite_control::Awaits>| awaits.as_ref().map(|awaits| awaits.age_ns);
    if age(awaits) > age(&all.awaits) {
        all.awaits.clone_from(awaits);
    }
}

fn add_peer(all: &mut PeerStats, lane: &PeerStats) {
    let PeerStats {
        rank,
        eager_sent,
        rendezvous_sent,
        bytes_sent,
        eager_received,
        rendezvous_received,
        bytes_received,
        unexpected,
    } = lane;
    all.rank = *rank;
    all.eager_sent += eager_sent;
    all.rendezvous_sent += rendezvous_sent;
    all.bytes_sent = all.bytes_sent.wrapping_add(*bytes_sent);
    all.eager_received += eager_received;
    all.rendezvous_received += rendezvous_received;
    all.bytes_received = all.bytes_received.wrapping_add(*bytes_received);
    all.unexpected += unexpected;
}

impl OfLane {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that this lane has left the job. If all lanes have left, calls `report`, which reports the end of the
    /// rank's part in the job.
    fn end(&mut self, report: impl FnOnce(&mut dyn Directory)) {
        let mut shared = self.shared();
        if shared.leave() {
            report(&mut *shared.directory);
        }
    }
}

impl Directory for OfLane {
    fn request_address(&mut self, rank: u32) {
        let mut shared = self.shared();
        let known = shared.known.get(&rank).cloned();
        let share = &mut shared.shares[self.lane];
        share.requested.insert(rank);
        match known {
            Some((incarnation, address)) => share.post(Notice::Address { rank, incarnation, address }),
            None => shared.directory.request_address(rank),
        }
    }

    fn poll(&mut self) -> Option<Notice> {
        let mut shared = self.shared();
        if shared.shares[self.lane].news.is_empty() {
            shared.listen();
        }
        let share = &mut shared.shares[self.lane];
        let notice = share.news.pop_front();
        if notice.is_some() && share.news.is_empty() {
            share.alarm.silence();
        }
        notice
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.watch.as_fd())
    }

    /// Stores the figures of this lane. If `peers` is empty, reports the sums over all lanes to the launcher. A lane
    /// that no thread uses at the moment contributes the figures that it stored most recently. If `peers` is not empty,
    /// this is the report at the end of the rank, and [`Shared::leave`] reports the sums when the last lane leaves.
    fn tell(&mut self, figures: Figures, peers: &[PeerStats]) {
        let mut shared = self.shared();
        let share = &mut shared.shares[self.lane];
        (share.figures, share.peers) = (figures, peers.to_vec());
        if peers.is_empty() {
            let (figures, _) = shared.sums();
            shared.directory.tell(figures, &[]);
        }
    }

    fn give_up(&mut self, rank: u32, incarnation: u32, why: String) {
        let mut shared = self.shared();
        let how = format!("this rank gave it up: {why}");
        for (lane, share) in shared.shares.iter_mut().enumerate() {
            if lane != self.lane {
                share.post(Notice::Failed { rank, incarnation, how: how.clone(), returns: false });
            }
        }
        shared.directory.give_up(rank, incarnation, why);
    }

    fn tells_ends(&self) -> bool {
        self.tells_ends
    }

    fn tells_deaths(&self) -> bool {
        self.tells_deaths
    }

    fn leave(&mut self) {
        self.end(|directory| directory.leave());
    }

    fn close(&mut self) {
        self.end(|directory| directory.close());
    }

    fn panicked(&mut self) {
        self.end(|directory| directory.panicked());
    }
}
