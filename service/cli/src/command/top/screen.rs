//! The content of `samite top` and the effect of keys, without a terminal.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::ControlFlow;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::widgets::TableState;

use super::view::{COLUMNS, Row, View};

/// The state of the screen.
pub(super) struct Screen {
    pub(super) view: View,
    /// Indices into the view's rows, in display order.
    pub(super) order: Vec<usize>,
    /// The index of the sort column. The number of columns, which is no column's index, stands for the state.
    pub(super) column: usize,
    /// True if the largest value comes first.
    pub(super) descends: bool,
    /// The selected rank. It stays selected when the order changes.
    selected: Option<usize>,
    /// The visible part of the table; updated by drawing.
    pub(super) table: TableState,
    /// Number of visible ranks; updated by drawing.
    pub(super) page: usize,
    /// The job's send rates, the latest first.
    pub(super) history: VecDeque<Sent>,
}

/// Messages and bytes sent by all ranks, per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

impl Screen {
    pub(super) fn new(view: View) -> Screen {
        let mut screen = Screen {
            order: Vec::new(),
            column: 0,
            descends: false,
            selected: None,
            table: TableState::new(),
            page: 0,
            history: VecDeque::new(),
            view,
        };
        screen.sort();
        screen
    }

    /// Shows the next update.
    pub(super) fn show(&mut self, view: View) {
        let rates = || view.rates.iter().flatten();
        let sum = |of: fn(&super::view::Rates) -> f64| rates().map(of).sum::<f64>() as u64;
        let sent = Sent { messages: sum(|rates| rates.sent), bytes: sum(|rates| rates.bytes_sent) };
        self.history.push_front(sent);
        self.history.truncate(HISTORY_MAX);
        self.view = view;
        self.sort();
    }

    /// Handles a key. Returns `Break` if the key ends the program.
    pub(super) fn press(&mut self, key: KeyEvent) -> ControlFlow<()> {
        if key.kind == KeyEventKind::Release {
            return ControlFlow::Continue(());
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return ControlFlow::Break(()),
            KeyCode::Char('q') | KeyCode::Esc => return ControlFlow::Break(()),
            KeyCode::Up | KeyCode::Char('k') => self.step(|row, _| row.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.step(|row, _| row + 1),
            KeyCode::PageUp => self.step(|row, page| row.saturating_sub(page)),
            KeyCode::PageDown => self.step(|row, page| row + page),
            KeyCode::Home | KeyCode::Char('g') => self.step(|_, _| 0),
            KeyCode::End | KeyCode::Char('G') => self.step(|_, _| usize::MAX),
            KeyCode::Left | KeyCode::Char('h') => self.sort_by(self.column.saturating_sub(1)),
            KeyCode::Right | KeyCode::Char('l') => self.sort_by((self.column + 1).min(COLUMNS.len())),
            KeyCode::Char('r') => {
                self.descends = !self.descends;
                self.sort();
            }
            KeyCode::Enter => {
                self.select(self.selected.and_then(|rank| self.awaited_by(rank)).or(self.selected))
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    /// Returns the chain of waits that begins with the selected rank: each rank in it waits for the next rank. The
    /// chain ends with a rank that does not wait for exactly one other rank, or with a rank that is already in the
    /// chain. In the second case the ranks from its first occurrence on wait for each other.
    pub(super) fn chain(&self) -> Vec<usize> {
        let mut chain: Vec<usize> = self.selected.into_iter().collect();
        while let Some(next) = chain.last().and_then(|&rank| self.awaited_by(rank)) {
            let is_circle = chain.contains(&next);
            chain.push(next);
            if is_circle {
                break;
            }
        }
        chain
    }

    /// Returns the rank that `rank` waits for, if it waits for exactly one rank.
    fn awaited_by(&self, rank: usize) -> Option<usize> {
        let peer = self.view.row(rank)?.awaits()?.peer? as usize;
        (peer < self.order.len()).then_some(peer)
    }

    /// Moves the selection to the row that `step` returns for the selected row and the length of a page. If no row is
    /// selected, the move starts above the first row.
    fn step(&mut self, step: fn(usize, usize) -> usize) {
        let Some(last) = self.order.len().checked_sub(1) else { return };
        let page = self.page.max(1);
        let row = match self.table.selected() {
            Some(row) => step(row, page),
            None => step(0, page).saturating_sub(1),
        };
        self.select(Some(self.order[row.min(last)]));
    }

    fn select(&mut self, rank: Option<usize>) {
        self.selected = rank;
        self.table.select(rank.and_then(|rank| self.order.iter().position(|&other| other == rank)));
    }

    /// Sorts by a column. The largest numbers come first. Ranks and states are sorted in ascending order.
    fn sort_by(&mut self, column: usize) {
        self.descends = (1..COLUMNS.len()).contains(&column);
        self.column = column;
        self.sort();
    }

    fn sort(&mut self) {
        let rows: Vec<Row<'_>> = self.view.rows().collect();
        let direct = |ordering: Ordering| if self.descends { ordering.reverse() } else { ordering };
        let mut order: Vec<usize> = (0..rows.len()).collect();
        match COLUMNS.get(self.column) {
            // Unknown values come last in either order.
            Some(column) => order.sort_by(|&a, &b| match [a, b].map(|index| (column.value)(&rows[index])) {
                [Some(a), Some(b)] => direct(a.total_cmp(&b)),
                [a, b] => b.is_some().cmp(&a.is_some()),
            }),
            None => {
                let states: Vec<String> = rows.iter().map(Row::brief_state).collect();
                order.sort_by(|&a, &b| direct(states[a].cmp(&states[b])));
            }
        }
        self.order = order;
        self.select(self.selected);
    }
}

/// The largest number of entries in the history: as many as a wide terminal can show.
const HISTORY_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::super::view::tests::view;
    use super::*;

    fn screen() -> Screen {
        let mut screen = Screen::new(view());
        screen.page = 3;
        screen
    }

    fn press(screen: &mut Screen, codes: &[KeyCode]) {
        for &code in codes {
            assert!(screen.press(code.into()).is_continue(), "{code}");
        }
    }

    #[test]
    fn some_keys_end_it() {
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        for key in [KeyCode::Char('q').into(), KeyCode::Esc.into(), control_c] {
            assert!(screen().press(key).is_break(), "{key:?}");
        }
        press(&mut screen(), &[KeyCode::Char('c'), KeyCode::Char('x'), KeyCode::Tab]);
    }

    #[test]
    fn steps_stay_within_the_table() {
        let mut screen = screen();
        let steps = [
            (KeyCode::Down, 0),
            (KeyCode::Up, 0),
            (KeyCode::Char('j'), 1),
            (KeyCode::PageDown, 4),
            (KeyCode::Down, 4),
            (KeyCode::PageUp, 1),
            (KeyCode::End, 4),
            (KeyCode::Home, 0),
        ];
        for (key, selected) in steps {
            press(&mut screen, &[key]);
            assert_eq!(screen.table.selected(), Some(selected), "{key}");
        }
    }

    #[test]
    fn what_is_not_known_comes_last() {
        let mut screen = screen();
        assert_eq!(screen.order, [0, 1, 2, 3, 4]);
        // Messages sent: only two ranks have reported any.
        press(&mut screen, &[KeyCode::Right]);
        assert_eq!((screen.column, &screen.order[..]), (1, &[1, 0, 2, 3, 4][..]));
        press(&mut screen, &[KeyCode::Char('r')]);
        assert_eq!(screen.order, [0, 1, 2, 3, 4]);
        press(&mut screen, &[KeyCode::Left, KeyCode::Left, KeyCode::Char('r')]);
        assert_eq!((screen.column, &screen.order[..]), (0, &[4, 3, 2, 1, 0][..]));
        // States sort alphabetically.
        press(&mut screen, &[KeyCode::Right; COLUMNS.len() + 1]);
        assert_eq!((screen.column, &screen.order[..]), (COLUMNS.len(), &[3, 2, 0, 1, 4][..]));
    }

    #[test]
    fn the_selection_follows_its_rank() {
        let mut screen = screen();
        press(&mut screen, &[KeyCode::Down, KeyCode::Right]);
        assert_eq!(screen.table.selected(), Some(1));
        screen.show(view());
        assert_eq!((screen.table.selected(), screen.chain()[0]), (Some(1), 0));
    }

    #[test]
    fn it_is_seen_whom_all_wait_for_in_the_end() {
        let mut screen = screen();
        assert_eq!(screen.chain(), [] as [usize; 0]);
        press(&mut screen, &[KeyCode::Enter, KeyCode::Down]);
        assert_eq!(screen.chain(), [0, 1, 2]);
        press(&mut screen, &[KeyCode::Enter]);
        assert_eq!(screen.chain(), [1, 2]);
        press(&mut screen, &[KeyCode::Enter, KeyCode::Enter]);
        assert_eq!(screen.chain(), [2]);

        let mut view = view();
        let awaits = &mut view.snapshot.ranks[1].figures.as_mut().unwrap().awaits;
        awaits.as_mut().unwrap().peer = Some(0);
        screen.show(view);
        press(&mut screen, &[KeyCode::Home]);
        assert_eq!(screen.chain(), [0, 1, 0]);
    }

    #[test]
    fn a_peer_that_is_not_of_the_job_is_no_rank() {
        let mut view = view();
        let awaits = &mut view.snapshot.ranks[0].figures.as_mut().unwrap().awaits;
        awaits.as_mut().unwrap().peer = Some(5);
        let mut screen = Screen::new(view);
        press(&mut screen, &[KeyCode::Down, KeyCode::Enter]);
        assert_eq!(screen.chain(), [0]);
    }

    #[test]
    fn the_history_is_that_of_all_ranks_and_bounded() {
        let mut screen = screen();
        for _ in 0..=HISTORY_MAX {
            screen.show(view());
        }
        assert_eq!(screen.history.len(), HISTORY_MAX);
        assert_eq!(screen.history[0], Sent { messages: 36_000, bytes: 36_000 * 8192 });
    }
}
