// Draws a lane with leases: how many of its decisions this process made by itself, and how many Redis.
const kept = 60_000 // ms

// A Tally keeps the counts of the last minute.
export class Tally {
  counts = [] // {at, leased, redis, other}, each for the time since the one before

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

const step = 200 // ms: the width of a column

// drawTally draws a column for each step: the decisions of this process above, those of Redis below.
export function drawTally({ c, x, y, base, now, span, tally, colour, row }) {
  for (let at = Math.floor((now - span) / step) * step; at <= now; at += step) {
    const { leased, redis, other } = tally.sums(at, at + step)
    const [left, width] = [x(at) + 0.5, x(at + step) - x(at) - 1]
    const bar = (from, to, tone) => {
      c.fillStyle = tone
      c.fillRect(left, y(to), width, y(from) - y(to))
    }
    c.globalAlpha = 0.55
    bar(0, leased, colour.served)
    bar(leased, leased + other, colour.edge)
    c.globalAlpha = 1
    c.fillStyle = colour.held
    for (let i = 0; i < Math.min(redis, 3); i++) {
      c.beginPath()
      c.arc(left + width / 2, base + 8 + i * (row / 3), 2.6, 0, 2 * Math.PI)
      c.fill()
    }
  }
}
