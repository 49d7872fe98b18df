//! Send and receive cases that run on every port, except the tests that are marked `#[test]` in the modules. Each case
//! on each port is a test of its own.

mod cancels;
mod claims;
mod credit;
mod ending;
mod failure;
mod job;
mod lengths;
mod matching;
mod misuse;
mod modes;
mod moves;
mod partitioned;
mod puts;
mod quarantine;
mod room;
mod rounds;
mod slabs;
mod types;

use std::time::Instant;

use samite_fabric::loopback::{Hub, Loopback};
#[cfg(feature = "ofi")]
use samite_fabric::ofi::offer::recorded;
use samite_fabric::shm::{Config as ShmConfig, Shm};
use samite_fabric::sim::{Config as SimConfig, Net, SimPort};
use samite_fabric::{Caps, Order, Reach, SplitMix64};

use job::Medium;

struct InProcess {
    hub: Hub,
    clock: Clock,
}

impl InProcess {
    fn new() -> Self {
        Self { hub: Hub::new(), clock: Clock::start() }
    }
}

impl Medium for InProcess {
    type Port = Loopback;

    fn open(&mut self, _: u32) -> Loopback {
        self.hub.port()
    }

    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    fn rest(&mut self) {
        std::thread::yield_now();
    }
}

struct Simulated(Net);

impl Simulated {
    /// A network with all capabilities and no faults.
    fn kind() -> Self {
        Self(Net::new(1, SimConfig::default()))
    }

    /// A network that has no puts and gets, and no fence.
    fn poor() -> Self {
        let mut config = SimConfig::default();
        (config.caps.put, config.caps.get, config.caps.change) = (Reach::None, Reach::None, Reach::None);
        (config.caps.rma_max, config.caps.fence) = (0, false);
        (config.caps.packet_max, config.caps.fragment_max) = (512, 512);
        (config.caps.zcopy_max, config.channel_depth) = (0, 2);
        Self(Net::new(2, config))
    }

    /// A network that has puts and no gets, whose packets overtake puts unless it keeps their order.
    fn puts(keeps_order: bool) -> Self {
        Self::slow_puts(keeps_order, 10_000)
    }

    /// The same network, whose puts complete late.
    fn slow_puts(keeps_order: bool, completion_delay_ns: u64) -> Self {
        let mut config = SimConfig::default();
        (config.caps.get, config.caps.change, config.caps.rma_max) = (Reach::None, Reach::None, 30_000);
        config.caps.order.set(Order::SEND_AFTER_PUT, keeps_order);
        (config.jitter_ns, config.completion_delay_ns) = (2_000, completion_delay_ns);
        Self(Net::new(6, config))
    }

    /// A network with the limits and capabilities of a provider that needs hardware. Completions are as late and as
    /// reordered as the capabilities permit.
    #[cfg(feature = "ofi")]
    fn like(offer: &samite_fabric::ofi::offer::Offer) -> Self {
        let loaded = samite_fabric::ofi::Loaded { closes_connections: true, rxm_packet_max: 16 << 10 };
        let plan = offer.plan(&Default::default(), loaded).expect("the port can use it");
        let mut config = SimConfig { caps: plan.caps, ..SimConfig::default() };
        // The tests send messages of this length, and a provider's limit may be larger than the memory.
        config.caps.rma_max = config.caps.rma_max.min(1 << 20);
        (config.jitter_ns, config.completion_delay_ns) = (2_000, 10_000);
        Self(Net::new(4, config))
    }

    /// A slow network that reorders packets and often has no room.
    fn adverse() -> Self {
        let mut config = SimConfig::adverse(&mut SplitMix64::new(5));
        (config.caps.get, config.caps.rma_max, config.caps.rma_depth) = (Reach::Any, 4096, 3);
        (config.jitter_ns, config.storms_per_million, config.storm_ns) = (5_000, 200_000, 10_000);
        (config.spikes_per_million, config.completion_delay_ns, config.exposures_max) = (0, 10_000, 0);
        config.registrations_max = usize::MAX;
        Self(Net::new(3, config))
    }
}

impl Medium for Simulated {
    type Port = SimPort;

    fn open(&mut self, rank: u32) -> SimPort {
        self.0.start(rank)
    }

    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }

    fn rest(&mut self) {
        if !self.0.advance() {
            self.0.advance_to(self.0.now_ns() + job::SOON_NS / 10);
        }
    }

    fn kill(&mut self, rank: u32) {
        self.0.kill(rank);
    }
}

struct SharedMemory(Clock);

impl SharedMemory {
    fn new() -> Self {
        Self(Clock::start())
    }
}

impl Medium for SharedMemory {
    type Port = Shm;

    fn open(&mut self, _: u32) -> Shm {
        Shm::open(&ShmConfig::default()).expect("shared memory works here")
    }

    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }

    fn rest(&mut self) {
        std::thread::yield_now();
    }
}

#[cfg(feature = "ofi")]
struct Ofi(Clock);

#[cfg(feature = "ofi")]
impl Ofi {
    fn new() -> Self {
        Self(Clock::start())
    }
}

#[cfg(feature = "ofi")]
impl Medium for Ofi {
    type Port = samite_fabric::ofi::OfiPort;

    fn open(&mut self, rank: u32) -> Self::Port {
        let mut config = samite_fabric::ofi::OfiConfig {
            stays_on_host: true,
            seed: u64::from(rank) + 1,
            ..Default::default()
        };
        // ci/providers.sh sets it.
        if let Some(provider) = samite_os::env::get("SAMITE_TEST_PROVIDER") {
            config.provider = provider;
        }
        if let Some(name) = samite_os::env::get("SAMITE_TEST_RULES") {
            config.rules = Some(recorded::of(&name).expect("it is recorded"));
        }
        Self::Port::open(&config).expect("libfabric works here")
    }

    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }

    fn rest(&mut self) {
        std::thread::yield_now();
    }

    /// Returns false: a poll may not find all bytes that were sent, because the system delivers a connection's bytes in
    /// pieces.
    fn is_prompt(&self) -> bool {
        false
    }
}

/// Ports of two kinds in one network: the ports of odd ranks do not support gets.
struct Mixed(Simulated);

impl Mixed {
    fn new() -> Self {
        Self(Simulated::kind())
    }
}

impl Medium for Mixed {
    type Port = SimPort;

    fn open(&mut self, rank: u32) -> SimPort {
        self.0.0.start_as(
            rank,
            Caps { get: Reach::Any.when(rank.is_multiple_of(2)), ..SimConfig::default().caps },
        )
    }

    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }

    fn rest(&mut self) {
        self.0.rest();
    }

    fn kill(&mut self, rank: u32) {
        self.0.kill(rank);
    }
}

/// Ports that expose borrowed memory. `reads` tells if the peers can read it.
struct Exposing {
    network: Simulated,
    reads: bool,
}

impl Exposing {
    fn new(reads: bool) -> Self {
        let config = SimConfig { exposures_max: usize::MAX, reads, ..SimConfig::default() };
        Self { network: Simulated(Net::new(5, config)), reads }
    }
}

impl Medium for Exposing {
    type Port = SimPort;

    fn open(&mut self, rank: u32) -> SimPort {
        self.network.open(rank)
    }

    fn now_ns(&self) -> u64 {
        self.network.now_ns()
    }

    fn rest(&mut self) {
        self.network.rest();
    }

    fn kill(&mut self, rank: u32) {
        self.network.kill(rank);
    }

    fn exposes(&self) -> bool {
        true
    }

    fn reads(&self) -> bool {
        self.reads
    }
}

/// A port over which borrowed messages are scattered in memory, at the receiver and, if `sent`, at the sender.
struct Scattering<M> {
    medium: M,
    sent: bool,
}

impl<M> Scattering<M> {
    fn both(medium: M) -> Self {
        Self { medium, sent: true }
    }

    fn received(medium: M) -> Self {
        Self { medium, sent: false }
    }
}

impl<M: Medium> Medium for Scattering<M> {
    type Port = M::Port;

    fn open(&mut self, rank: u32) -> M::Port {
        self.medium.open(rank)
    }

    fn now_ns(&self) -> u64 {
        self.medium.now_ns()
    }

    fn rest(&mut self) {
        self.medium.rest();
    }

    fn kill(&mut self, rank: u32) {
        self.medium.kill(rank);
    }

    fn exposes(&self) -> bool {
        self.medium.exposes() && !self.sent
    }

    fn is_prompt(&self) -> bool {
        self.medium.is_prompt()
    }

    fn reads(&self) -> bool {
        self.medium.reads()
    }

    fn scatters_sent(&self) -> bool {
        self.sent
    }

    fn scatters_received(&self) -> bool {
        true
    }
}

/// Real time.
struct Clock(Instant);

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "ports to the real world live in real time")]
    fn start() -> Self {
        Self(Instant::now())
    }

    fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// Makes each case a test on each port.
macro_rules! on_every_port {
    ($($module:ident: $($case:ident),+ $(,)?;)+) => {
        on_every_port!(@port loopback, crate::InProcess::new(), $($module: $($case),+;)+);
        on_every_port!(@port sim, crate::Simulated::kind(), $($module: $($case),+;)+);
        on_every_port!(@port sim_poor, crate::Simulated::poor(), $($module: $($case),+;)+);
        on_every_port!(@port sim_adverse, crate::Simulated::adverse(), $($module: $($case),+;)+);
        on_every_port!(@port sim_puts, crate::Simulated::puts(true), $($module: $($case),+;)+);
        on_every_port!(@port sim_unordered_puts, crate::Simulated::puts(false), $($module: $($case),+;)+);
        on_every_port!(@port sim_read, crate::Exposing::new(true), $($module: $($case),+;)+);
        on_every_port!(@port sim_unread, crate::Exposing::new(false), $($module: $($case),+;)+);
        on_every_port!(@port sim_mixed, crate::Mixed::new(), $($module: $($case),+;)+);
        on_every_port!(@port shm, crate::SharedMemory::new(), $($module: $($case),+;)+);
        #[cfg(feature = "ofi")]
        on_every_port!(@port ofi, crate::Ofi::new(), $($module: $($case),+;)+);
        #[cfg(feature = "ofi")]
        on_every_port!(@port like_verbs, crate::Simulated::like(&crate::recorded::verbs_rxm()), $($module: $($case),+;)+);
        #[cfg(feature = "ofi")]
        on_every_port!(@port like_cxi, crate::Simulated::like(&crate::recorded::cxi()), $($module: $($case),+;)+);
        #[cfg(feature = "ofi")]
        on_every_port!(@port like_efa, crate::Simulated::like(&crate::recorded::efa()), $($module: $($case),+;)+);
        #[cfg(feature = "ofi")]
        on_every_port!(@port like_psm3, crate::Simulated::like(&crate::recorded::psm3()), $($module: $($case),+;)+);
    };
    (@port $port:ident, $medium:expr, $($module:ident: $($case:ident),+;)+) => {
        mod $port {
            $($(
                #[test]
                fn $case() {
                    crate::$module::$case($medium);
                }
            )+)+
        }
    };
}

on_every_port! {
    lengths:
        length_0, length_1, length_7, length_8, length_63, length_64, length_65, length_255, length_256,
        length_1000, length_4095, length_4096, length_4097, length_16383, length_16384, length_16385,
        length_65536, length_100001, length_1_mib, length_5_mib_and_1,
        length_short_max_less_1, length_short_max, length_short_max_and_1,
        length_eager_max_less_1, length_eager_max, length_eager_max_and_1,
        length_packet_max_less_1, length_packet_max, length_packet_max_and_1,
        length_data_max_less_1, length_data_max, length_data_max_and_1,
        length_rma_max_less_1, length_rma_max, length_rma_max_and_1,
        length_pull_window, length_pull_window_and_1, length_push_window, length_push_window_and_1,
        a_tiny_pull_chunk, a_tiny_push_window, a_depth_of_one,
        borrowed_buffers_withheld, a_buffer_withheld_until_all_could_have_come, a_buffer_larger_than_the_message;
    matching:
        tags_choose_messages, tags_use_all_bits, contexts_keep_apart, any_tag, any_source, any_source_and_tag,
        masks_compare_the_bits_they_have, messages_keep_their_order, order_holds_across_protocols,
        order_holds_for_wildcards, the_earlier_receive_comes_first, what_has_come_goes_to_the_earlier_receive, the_earlier_receive_wins_over_the_closer,
        sources_do_not_wait_for_each_other, unexpected_messages_in_reverse, posted_receives_in_reverse,
        many_outstanding, many_outstanding_long, all_to_all, all_to_all_long, both_ways_at_once,
        to_self_eager, to_self_long, to_self_posted_first, to_self_in_order,
        probe_tells_and_leaves, probe_of_nothing, probe_with_wildcards, probe_of_a_long_message,
        claim_takes_away, claim_of_a_long_message, claim_into_borrowed_memory, claims_keep_order,
        claim_and_discard, claim_and_discard_long, claimed_is_not_probed;
    ending:
        truncated_eager, truncated_eager_unexpected, truncated_long, truncated_long_unexpected,
        truncated_borrowed, truncated_to_nothing,
        cancel_a_receive, cancel_a_receive_late, cancel_a_long_send, cancel_a_long_send_late,
        a_send_ends_though_its_receiver_does_not_poll,
        cancel_one_of_many_receives, cancel_twice, cancel_what_is_over, forget_a_receive, forget_a_long_send,
        forget_a_borrowed_send, forget_a_matched_borrowed_send, forget_a_matched_borrowed_receive,
        forget_a_send_whose_receiver_is_not_ready,
        deadline_of_a_receive, deadline_of_a_receive_from_any, deadline_of_a_long_send,
        deadline_of_a_matched_send, deadline_of_a_matched_receive, deadline_already_passed,
        deadline_passed_but_eager_arrived, deadline_passed_but_eager_claimed, deadline_passed_but_long_arrived,
        deadline_passed_but_long_claimed, deadline_passed_but_longer_arrived, deadline_passed_but_longer_claimed,
        deadline_after_the_end, deadline_moved, deadline_removed_by_moving,
        a_timed_out_receive_takes_nothing, reports_say_what_was_awaited, collect_once;
    credit:
        without_credit_envelopes_wait, credit_recovers, the_budget_holds_for_many_senders, no_budget_at_all,
        envelopes_are_bounded, a_refused_send_can_be_repeated,
        refusals_that_are_not_taken_fail_nobody, revocations_that_are_not_taken_fail_nobody,
        confirmations_that_are_not_taken_fail_nobody, initializations_that_get_no_answer_fail_nobody, credit_grows_with_use, nobody_starves_for_idle_peers,
        order_without_credit;
    failure:
        death_ends_a_receive, death_ends_a_long_send, death_ends_a_matched_send, death_ends_a_matched_receive,
        death_ends_a_claimed_receive, death_spares_what_has_arrived_whole, death_spares_what_was_received,
        death_is_pending_for_any_source, death_between_two_receives_is_pending,
        death_spares_a_matched_receive_from_any_source, death_of_all_others_ends_any_source, death_spares_other_pairs,
        a_rank_that_returns_is_waited_for, own_messages_come_without_others, failing_after_goodbye,
        messages_of_a_goodbye_end_with_the_next_incarnation, messages_of_the_dead_end_with_the_next_incarnation,
        messages_of_a_goodbye_outlive_the_failure_of_later_incarnations, a_hello_tells_of_a_failure_after_goodbye,
        death_refuses_new_operations, news_of_an_earlier_incarnation, a_restarted_rank_talks, a_restarted_rank_can_be_waited_for,
        a_restarted_rank_gets_nothing_old, a_restart_overtakes_news_of_the_death,
        leaving_amid_a_receive_delivers_what_was_sent, leaving_delivers_what_was_sent, leaving_ends_what_waits,
        leaving_amid_a_send_delivers_it_or_says_that_it_does_not, leaving_withdraws_long_sends, leaving_all_at_once,
        leaving_after_claim, leave_without_contact;
    rounds:
        rounds_of_every_kind, rounds_keep_order, a_start_to_the_dead_is_refused;
    claims:
        a_claimed_message_outlives_its_senders_departure, a_claimed_message_outlives_its_senders_death,
        a_claimed_message_outlives_its_senders_next_incarnation,
        a_claimed_message_may_be_discarded_after_its_senders_end;
    partitioned:
        one_partition, equal_cuts, a_finer_sender, a_finer_receiver, cuts_without_a_common_divisor, bytes_of_one,
        long_partitions, partitions_without_bytes, pairs_meet_in_order_and_no_message, different_lengths_end_both,
        deadline_of_a_sender, deadline_of_a_receiver, cancel_of_a_sender, cancel_of_a_receiver,
        a_side_dropped_in_a_round, a_withdrawn_initialization_keeps_its_place, a_last_round_outlives_its_sender_half,
        death_of_the_other, death_of_a_receiver, initializations_are_bounded, a_closed_context_ends_its_pairs,
        to_self_in_parts, partners_must_exist;
    modes:
        a_synchronous_send_ends_with_its_match, a_synchronous_send_ends_with_a_posted_receive,
        a_synchronous_send_ends_with_the_receive_of_its_claim, a_discarded_synchronous_message_was_received,
        a_synchronous_send_to_a_shorter_buffer_ends, synchronous_messages_keep_their_order,
        a_synchronous_send_is_withdrawn, a_synchronous_send_that_matched_is_delivered,
        a_synchronous_message_outlives_its_sender, a_claimed_synchronous_message_outlives_its_sender,
        death_ends_a_synchronous_send, synchronous_sends_without_credit, a_synchronous_send_to_self,
        a_ready_send_needs_its_receive, a_ready_send_that_meets_a_receive,
        buffered_sends_end_at_once, a_buffer_has_a_budget, buffered_messages_keep_their_order,
        buffered_messages_to_the_dead_leave_the_buffer, a_goodbye_comes_after_buffered_messages;
    cancels:
        a_cancelled_send_is_whole_or_nothing, a_cancelled_receive_is_whole_or_nothing,
        a_receive_that_timed_out_tells_if_it_has_a_part;
    types:
        a_message_of_other_types_is_an_error_of_its_receive_alone, a_waiting_message_keeps_its_types,
        a_claimed_message_keeps_its_types, only_known_types_are_compared, other_types_come_before_a_wrong_length,
        a_cancelled_send_and_a_cancelled_receive_leave_nothing,
        a_message_of_a_rank_that_failed_keeps_its_types, halves_of_other_types_are_no_pair;
    misuse:
        send_to_nobody, receive_from_nobody, probe_of_nobody, memory_comes_back_from_a_refusal,
        introduce_no_peer, fail_no_peer, strange_packets_are_counted, forged_keys_open_nothing,
        errors_name_the_misuse;
}

/// Makes each case a test of scattered messages, on one port for each way in which ports move the bytes.
macro_rules! scattered {
    ($($cases:tt)+) => {
        on_every_port!(@port loopback_scattered, crate::Scattering::both(crate::InProcess::new()), $($cases)+);
        on_every_port!(@port sim_scattered, crate::Scattering::both(crate::Simulated::kind()), $($cases)+);
        on_every_port!(@port sim_poor_scattered, crate::Scattering::both(crate::Simulated::poor()), $($cases)+);
        on_every_port!(@port sim_adverse_scattered, crate::Scattering::both(crate::Simulated::adverse()), $($cases)+);
        on_every_port!(@port sim_read_scattered, crate::Scattering::received(crate::Exposing::new(true)), $($cases)+);
        on_every_port!(@port shm_scattered, crate::Scattering::both(crate::SharedMemory::new()), $($cases)+);
        #[cfg(feature = "ofi")]
        on_every_port!(@port ofi_scattered, crate::Scattering::both(crate::Ofi::new()), $($cases)+);
    };
}

scattered! {
    lengths:
        length_0, length_1, length_7, length_8, length_64, length_1000, length_4097, length_16384, length_16385,
        length_65536, length_100001, length_1_mib, length_eager_max, length_eager_max_and_1,
        length_pull_window_and_1, length_push_window_and_1, a_tiny_pull_chunk, a_tiny_push_window,
        borrowed_buffers_withheld, a_buffer_withheld_until_all_could_have_come, a_buffer_larger_than_the_message;
    matching:
        order_holds_across_protocols, unexpected_messages_in_reverse, both_ways_at_once, to_self_long,
        claim_into_borrowed_memory;
    ending:
        truncated_eager, truncated_eager_unexpected, truncated_long, truncated_long_unexpected, truncated_borrowed,
        forget_a_matched_borrowed_send, forget_a_matched_borrowed_receive, a_timed_out_receive_takes_nothing;
    failure:
        death_ends_a_matched_send, death_ends_a_matched_receive, death_spares_what_has_arrived_whole;
}
