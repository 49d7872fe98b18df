//! The layout of the screen.

use std::collections::BTreeSet;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{RenderDirection, Sparkline, Table};
use samite_control::Ending;
use samite_launch::RankView;

use super::screen::{Screen, Sent};
use super::view::{COLUMNS, Row, short};

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, screen: &mut Screen) {
    let waits = chain(screen);
    let [head, curves, ranks, chain, keys] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(3),
        Constraint::Fill(1),
        Constraint::Length(waits.len() as u16),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(self::head(screen), head);
    let [messages, bytes] = Layout::horizontal([Constraint::Fill(1); 2]).spacing(2).areas(curves);
    curve(frame, messages, "messages sent/s", screen, |sent| sent.messages);
    curve(frame, bytes, "bytes sent/s", screen, |sent| sent.bytes);
    table(frame, ranks, screen);
    frame.render_widget(Text::from_iter(waits), chain);
    frame.render_widget(Line::from(KEYS).dim(), keys);
}

/// Returns the description of the job.
fn head(screen: &Screen) -> Text<'static> {
    let snapshot = &screen.view.snapshot;
    let count = |is: fn(&RankView) -> bool| snapshot.ranks.iter().filter(|rank| is(rank)).count();
    let mut ranks = format!("{} ranks", snapshot.ranks.len());
    let hosts: BTreeSet<_> = snapshot.ranks.iter().map(|rank| &rank.host).collect();
    if hosts.len() > 1 {
        ranks += &format!(" on {} hosts", hosts.len());
    }
    for (count, what) in [
        (count(|rank| rank.is_stopped && rank.ending.is_none()), "stopped"),
        (count(|rank| rank.ending == Some(Ending::Left)), "left"),
        (count(has_failed), "failed"),
    ] {
        if count > 0 {
            ranks += &format!(", {count} {what}");
        }
    }
    let transport = snapshot.transport.as_deref().unwrap_or("auto");
    let seconds = snapshot.age_ms / 1000;
    let age = format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    Text::from(vec![
        Line::from(format!("job {}: {}", snapshot.job, snapshot.program)).bold(),
        Line::from(format!("{ranks}; transport {transport}; since {age}")),
    ])
}

/// Draws a rate of the whole job over time, with the present at the right.
fn curve(frame: &mut Frame<'_>, area: Rect, name: &str, screen: &Screen, of: fn(&Sent) -> u64) {
    let [title, bars] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    let shown = screen.history.iter().take(bars.width.into()).map(of);
    if let (Some(now), Some(most)) = (shown.clone().next(), shown.clone().max()) {
        let [now, most] = [now, most].map(|rate| short(rate as f64));
        frame.render_widget(Line::from(format!("{name} {now}, at most {most}")), title);
    }
    let bars_of = Sparkline::default().direction(RenderDirection::RightToLeft).style(Color::Cyan);
    frame.render_widget(bars_of.data(shown), bars);
}

fn table(frame: &mut Frame<'_>, area: Rect, screen: &mut Screen) {
    let Screen { view, order, column: sorted_by, descends, table, page, .. } = screen;
    let mark = |index| match (index == *sorted_by, *descends) {
        (false, _) => "",
        (true, true) => "▼",
        (true, false) => "▲",
    };
    let hosts = view.snapshot.ranks.iter().filter_map(|rank| Some(rank.host.as_ref()?.chars().count()));
    let host_width = hosts.max().map(|width| width.clamp(4, HOST_WIDTH_MAX) as u16);

    let columns =
        fitting(usize::from(area.width.saturating_sub(host_width.map_or(0, |width| width + 1))), *sorted_by);

    // The cells of a line: the rank, the host if there are several, the other numbers, and the state.
    let line = |rank: String, host: &str, numbers: &mut dyn Iterator<Item = String>, state: String| {
        let right = |text: String| Text::from(text).right_aligned();
        let host = host_width.map(|_| Text::from(format!(" {host}")));
        let cells = [right(rank)].into_iter().chain(host).chain(numbers.map(right));
        ratatui::widgets::Row::new(cells.chain([Text::from(format!(" {state}"))]).collect::<Vec<_>>())
    };
    let mut heads = columns.iter().map(|&index| mark(index).to_owned() + COLUMNS[index].head);
    let rank_head = heads.next().unwrap_or_default();
    let header = line(rank_head, "host", &mut heads, mark(COLUMNS.len()).to_owned() + "state").bold();
    let rows: Vec<Row<'_>> = view.rows().collect();
    let lines = order.iter().map(|&index| {
        let row = &rows[index];
        let mut cells = columns.iter().map(|&index| COLUMNS[index].cell(row));
        let rank = cells.next().unwrap_or_default();
        let host = row.rank.host.as_deref().unwrap_or_default();
        line(rank, host, &mut cells, row.brief_state()).style(style(row))
    });

    let numbers = columns.iter().map(|&index| Constraint::Length(width(index) as u16));
    let mut widths: Vec<Constraint> = numbers.chain([Constraint::Fill(1)]).collect();
    if let Some(width) = host_width {
        widths.insert(1, Constraint::Length(width + 1));
    }
    let shown = Table::new(lines, widths).header(header).column_spacing(0);
    frame.render_stateful_widget(shown.row_highlight_style(Modifier::REVERSED), area, table);
    *page = usize::from(area.height.saturating_sub(1));
}

/// Returns the columns that fit beside the state: at least the rank and the sort column.
fn fitting(room: usize, sorted_by: usize) -> Vec<usize> {
    let mut columns: Vec<usize> = (0..COLUMNS.len()).collect();
    while columns.iter().copied().map(width).sum::<usize>() + STATE_WIDTH_MIN > room {
        let last = columns.iter().copied().filter(|&index| index != 0 && index != sorted_by);
        let Some(last) = last.max_by_key(|&index| COLUMNS[index].precedence) else { break };
        columns.retain(|&index| index != last);
    }
    columns
}

/// Returns the width of a column in characters, with the space before it that holds the sort mark.
fn width(index: usize) -> usize {
    (COLUMNS[index].head.len() + 1).max(WIDTH_MIN)
}

/// Returns lines about the selected rank: its state, and the chain of ranks that it waits for.
fn chain(screen: &Screen) -> Vec<String> {
    let ranks = screen.chain();
    let says = |rank: &usize| {
        let row = screen.view.row(*rank)?;
        let incarnation = if row.rank.incarnation > 1 {
            format!(", incarnation {}", row.rank.incarnation)
        } else {
            String::new()
        };
        Some(format!("rank {}{incarnation}: {}", row.rank.rank, row.state()))
    };
    let mut lines: Vec<String> = ranks.first().and_then(says).into_iter().collect();
    if let [_, .., last] = &ranks[..] {
        let mut links: Vec<String> = ranks.iter().map(usize::to_string).collect();
        if links.len() > 2 * LINKS_SHOWN {
            links.splice(LINKS_SHOWN..links.len() - LINKS_SHOWN, ["…".to_owned()]);
        }
        let end = circle(screen, &ranks).or_else(|| says(last));
        lines.push(format!("{}; {}", links.join(" → "), end.unwrap_or_default()));
    }
    lines
}

/// Returns a text that says how long the ranks at the end of a chain have waited for each other. A short time is no
/// sign of a deadlock: in a program that passes messages around a ring, all ranks wait for each other for moments.
fn circle(screen: &Screen, chain: &[usize]) -> Option<String> {
    let (last, before) = chain.split_last()?;
    let circle = &before[before.iter().position(|rank| rank == last)?..];
    let ages = circle.iter().filter_map(|&rank| Some(screen.view.row(rank)?.awaits()?.age_ns));
    let seconds = ages.min()? as f64 / 1e9;
    Some(format!("they wait for each other, for {seconds:.1} s"))
}

/// Returns the style of a row; highlights rows that need attention.
fn style(row: &Row<'_>) -> Style {
    match &row.rank.ending {
        Some(Ending::Left) => Style::new().dim(),
        Some(_) => Style::new().red(),
        None if row.rank.is_stopped => Style::new().yellow(),
        None => Style::new(),
    }
}

fn has_failed(rank: &RankView) -> bool {
    rank.ending.as_ref().is_some_and(|ending| *ending != Ending::Left)
}

const KEYS: &str = "q quit  ↑↓ PgUp PgDn select  Enter go to the awaited rank  ←→ sort  r reverse";

const WIDTH_MIN: usize = 6;
const STATE_WIDTH_MIN: usize = 20;
const HOST_WIDTH_MAX: usize = 16;

/// Number of ranks shown at each end of a long chain.
const LINKS_SHOWN: usize = 8;

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyCode;

    use super::super::view::View;
    use super::super::view::tests::view;
    use super::*;

    fn terminal(screen: &mut Screen, width: u16, height: u16) -> Terminal<TestBackend> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, screen)).unwrap();
        terminal
    }

    fn drawn(screen: &mut Screen, width: u16, height: u16) -> String {
        terminal(screen, width, height).backend().to_string()
    }

    fn press(screen: &mut Screen, codes: &[KeyCode]) {
        for &code in codes {
            assert!(screen.press(code.into()).is_continue());
        }
    }

    /// Returns the screen of a job whose rates rise and fall.
    fn screen() -> Screen {
        let mut screen = Screen::new(view());
        for step in 0..100_i32 {
            let mut view = view();
            for rates in view.rates.iter_mut().flatten() {
                rates.sent *= f64::from((step % 40 - 20).abs());
                rates.bytes_sent *= f64::from(step) / 10.0;
            }
            screen.show(view);
        }
        screen
    }

    #[test]
    fn a_job_on_two_hosts() {
        insta::assert_snapshot!(drawn(&mut screen(), 120, 14));
    }

    #[test]
    fn sorted_with_a_selected_rank_on_a_small_terminal() {
        let mut screen = screen();
        for rank in &mut screen.view.snapshot.ranks {
            rank.host = None;
        }
        press(&mut screen, &[KeyCode::Down, KeyCode::Right]);
        insta::assert_snapshot!(drawn(&mut screen, 80, 14));
    }

    #[test]
    fn on_a_narrow_terminal_what_is_sorted_by_stays() {
        let heads = |room, sorted_by| -> Vec<&str> {
            fitting(room, sorted_by).into_iter().map(|index| COLUMNS[index].head).collect()
        };
        assert_eq!(heads(120, 0).len(), COLUMNS.len());
        assert_eq!(heads(50, 0), ["rank", "sent/s", "wait%", "for s"]);
        assert_eq!(heads(50, 9), ["rank", "wait%", "age s", "for s"]);
        assert_eq!(heads(0, 9), ["rank", "age s"]);
        assert_eq!(heads(0, COLUMNS.len()), ["rank"]);
    }

    #[test]
    fn a_circle_is_called_so() {
        let mut view = view();
        let awaits = &mut view.snapshot.ranks[1].figures.as_mut().unwrap().awaits;
        awaits.as_mut().unwrap().peer = Some(0);
        view.snapshot.ranks[1].incarnation = 2;
        let mut screen = Screen::new(view);
        press(&mut screen, &[KeyCode::Down]);
        assert_eq!(
            chain(&screen),
            [
                "rank 0: recv from 1, tag 7, 8192 bytes, 0.4 s: message",
                "0 → 1 → 0; they wait for each other, for 0.4 s"
            ]
        );
        press(&mut screen, &[KeyCode::Down]);
        assert_eq!(
            chain(&screen),
            [
                "rank 1, incarnation 2: recv from 0, tag 7, 8192 bytes, 12.3 s: message",
                "1 → 0 → 1; they wait for each other, for 0.4 s"
            ]
        );
    }

    #[test]
    fn who_waits_for_a_circle_is_not_of_it() {
        let mut screen = Screen::new(many(3));
        for ((peer, age_ns), rank) in
            [(1, 0), (2, 5_000_000_000), (1, 7_000_000_000)].into_iter().zip(&mut screen.view.snapshot.ranks)
        {
            let awaits = rank.figures.as_mut().and_then(|figures| figures.awaits.as_mut()).unwrap();
            (awaits.peer, awaits.age_ns) = (Some(peer), age_ns);
        }
        press(&mut screen, &[KeyCode::Down]);
        assert_eq!(chain(&screen)[1], "0 → 1 → 2 → 1; they wait for each other, for 5.0 s");
    }

    #[test]
    fn of_a_long_chain_the_ends_are_shown() {
        let mut screen = Screen::new(many(100));
        for (number, rank) in (1..).zip(&mut screen.view.snapshot.ranks) {
            let last = number == 100;
            let awaits = rank.figures.as_mut().and_then(|figures| figures.awaits.as_mut());
            awaits.unwrap().peer = Some(number).filter(|_| !last);
        }
        press(&mut screen, &[KeyCode::Down]);
        assert_eq!(
            chain(&screen)[1],
            "0 → 1 → 2 → 3 → 4 → 5 → 6 → 7 → … → 92 → 93 → 94 → 95 → 96 → 97 → 98 → 99; \
             rank 99: recv from any, tag 7, 8192 bytes, 0.4 s: message"
        );
    }

    /// Returns a job of `ranks` ranks, each of which waits for rank 1.
    fn many(ranks: u32) -> View {
        let mut snapshot = view().snapshot;
        let one = &snapshot.ranks[0];
        snapshot.ranks = (0..ranks)
            .map(|rank| {
                let mut one = one.clone();
                one.rank = rank;
                one
            })
            .collect();
        View::between(&snapshot.clone(), snapshot)
    }

    #[test]
    fn the_selected_rank_is_in_sight() {
        let mut screen = Screen::new(many(1000));
        let is_shown = |screen: &mut Screen, rank: &str| {
            drawn(screen, 100, 24)
                .lines()
                .any(|line| line.trim_start_matches('"').trim_start().starts_with(rank))
        };
        assert!(is_shown(&mut screen, "0 "));
        // The first drawing has set the page to 16 ranks.
        press(&mut screen, &[KeyCode::Home, KeyCode::PageDown, KeyCode::PageDown]);
        assert!(is_shown(&mut screen, "32 ") && !is_shown(&mut screen, "15 "));
        press(&mut screen, &[KeyCode::End]);
        assert!(is_shown(&mut screen, "999 ") && !is_shown(&mut screen, "32 "));
    }

    #[test]
    fn there_may_be_no_room() {
        let mut screen = screen();
        press(&mut screen, &[KeyCode::Down]);
        for (width, height) in [(0, 0), (1, 1), (3, 200), (200, 3), (20, 8)] {
            terminal(&mut screen, width, height);
        }
    }
}
