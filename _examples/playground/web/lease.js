// This module draws a lane with leases: how many decisions this process made from leases, and how many Redis made.
const kept = 60_000 // ms

// A Tally keeps the counts of the last minute.
export class Tally {
  counts = [] // {at, leased, redis, other}, each for the time since the entry before

  add({ at, leased, redis, other }) {
    this.counts.push({ at, leased, redis, other })
  }

  forget(now) {
    const first = this.counts.findIndex((n) => n.at > now - kept)
    if (first > 0) this.counts.splice(0, first)
  }

  // sums adds up the counts in (from, to].
  sums(from, to) {
    const sums = { leased: 0, redis: 0, other: 0 }
    for (const n of this.counts.filter((n) => n.at > from && n.at <= to)) for (const by in sums) sums[by] += n[by]
    return sums
  }
}

const step = 500 // ms: the width of a column

// hot is how many decisions fill a column, with the traffic that the server makes.
export const hot = 50

// drawTally draws a column for the decisions of this process in each step, and below it a dot for each decision by Redis.
export function drawTally({ c, x, y, base, row, now, span, tally, colour }) {
  for (let at = Math.floor((now - span) / step) * step; at + step <= now; at += step) {
    const { leased, redis, other } = tally.sums(at, at + step)
    const [left, width] = [x(at) + 1, x(at + step) - x(at) - 2]
    const column = (from, to, tone) => {
      const [bottom, top] = [from, to].map((n) => y(Math.min(n, 1.1 * hot)))
      c.fillStyle = tone
      c.fillRect(left, top, width, bottom - top)
    }
    c.globalAlpha = 0.5
    column(0, leased, colour.served)
    column(leased, leased + other, colour.edge)
    c.globalAlpha = 1
    c.fillStyle = colour.held
    for (let i = 0; i < redis && 3 + 7 * i < width; i++) {
      c.beginPath()
      c.arc(left + 3 + 7 * i, base + 4 + 0.5 * row, 3, 0, 2 * Math.PI)
      c.fill()
    }
  }
}
