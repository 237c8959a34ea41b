//! The volumes that are still attached to the open node, below its pods.

use nm_shared::AttachedVolume;
use ratatui::layout::Rect;

use crate::elapsed::elapsed;
use crate::model::Model;
use crate::view::canvas::{Canvas, line};
use crate::view::table::{self, Column};
use crate::view::theme::Tone;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VolumeColumn {
    Volume,
    Claim,
    Driver,
    Time,
    Error,
}

const COLUMNS: [Column<VolumeColumn>; 5] = [
    Column::new(VolumeColumn::Volume, "ATTACHED VOLUME", 16, 2, 9),
    Column::new(VolumeColumn::Claim, "CLAIM", 14, 2, 5),
    Column::new(VolumeColumn::Driver, "DRIVER", 14, 1, 1),
    Column::new(VolumeColumn::Time, "FOR", 6, 0, 2),
    Column::new(VolumeColumn::Error, "ERROR", 14, 4, 6),
];

/// Draws as many volumes as fit below the headings; the last line counts those that do not.
pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let volumes = model.attached_volumes();
    if area.height == 0 || volumes.is_empty() {
        return;
    }
    let columns = table::fit(&COLUMNS, area.width.saturating_sub(1));
    table::draw_heads(&columns, 1, canvas, line(area, 0));
    let rows = usize::from(area.height - 1);
    let shown = if volumes.len() > rows { rows.saturating_sub(1) } else { rows };
    for (at, volume) in (1u16..).zip(volumes.iter().take(shown)) {
        table::draw_cells(&columns, 1, canvas, line(area, at), |column, _| cell(volume, column, model));
    }
    if volumes.len() > shown {
        let last = line(area, area.height - 1);
        canvas.write(last, last.x + 1, &format!("and {} more", volumes.len() - shown), Tone::Quiet);
    }
}

fn cell(volume: &AttachedVolume, column: &Column<VolumeColumn>, model: &Model) -> (String, Tone) {
    match column.what {
        VolumeColumn::Volume => {
            (volume.persistent_volume.clone().unwrap_or_else(|| volume.attachment.clone()), Tone::Plain)
        }
        VolumeColumn::Claim => {
            (volume.claim.as_ref().map_or_else(|| String::from("-"), ToString::to_string), Tone::Plain)
        }
        VolumeColumn::Driver => (volume.driver.clone(), Tone::Quiet),
        VolumeColumn::Time => (elapsed(model.now.duration_since(volume.since.0).as_secs()), Tone::Plain),
        VolumeColumn::Error => match &volume.error {
            Some(error) => (error.clone(), Tone::Bad),
            None => (String::from("-"), Tone::Quiet),
        },
    }
}
