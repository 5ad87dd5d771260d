// This module keeps the history of one lane: its decisions and levels of the last minute.
const kept = 60_000

export class History {
  // window is the length of the windows that the lane counts in, if it counts in windows; work is how long a request is
  // in flight, if that is limited.
  constructor({ window = 0, work = 0 } = {}) {
    this.window = window
    this.work = work
  }

  marks = []  // {at, served, ends, client, row, allowed, delay, used, hand, counted}, by time of decision
  levels = {} // by client: [{at, used}]; used is null where nothing is counted. The entry "also" is the second limit of client a
  cost = 1    // the cost of a request
  bans = []   // the bans of client a: {from, to}
  since = 0   // when the current configuration began
  totals = none()

  // restart resets the counts, for a new configuration.
  restart(at) {
    this.since = at
    this.totals = none()
    const ban = this.banned(at)
    if (ban) ban.to = at
  }

  decide(d) {
    const counted = d.source !== "fallback" && d.source !== "none" // by Redis
    insert(this.marks, {
      at: d.at, served: d.at + d.delay, ends: d.at + this.work, client: d.client, row: d.member ? String(d.member) : d.client,
      allowed: d.allowed, delay: d.delay, used: d.used, hand: d.by === "hand", counted,
    })
    this.totals[d.allowed ? "admitted" : "denied"]++
    if (d.second) this.totals.second++
    if (d.delay > 0) this.totals.held++
    if (d.member) return // the level is the one of all processes together
    this.ban(d)
    if (d.allowed && d.used >= 0) this.level(d.client, d.at, Math.max(0, d.used - this.cost)) // so that the curve rises vertically
    if (d.allowed || d.used < 0) this.read(d)
  }

  // read stores how much of the limits is used, from a decision or from a level that the server has read.
  read({ client, at, used, also }) {
    this.level(client, at, used < 0 ? null : used)
    if (client === "a") this.level("also", at, also < 0 ? null : also)
  }

  // ban stores how long the client of a decision or a level is banned. A request that is served ends a ban: without Redis, bans are unknown.
  ban({ client, at, banned, allowed }) {
    const last = this.bans.at(-1)
    if (client !== "a" || !banned && !allowed || at < last?.from) return
    if (at < last?.to) last.to = at + banned
    else if (banned > 0) this.bans.push({ from: at, to: at + banned })
  }

  // banned returns the ban that is in effect at an instant, if there is one.
  banned(at) {
    return this.bans.find(({ from, to }) => from <= at && at < to)
  }

  level(client, at, used) {
    const levels = this.levels[client] ??= []
    const begins = this.window && Math.floor(at / this.window) * this.window
    const before = levels.at(-1)
    if (before?.at < begins && before.used !== null) levels.push({ at: begins, used: before.used }, { at: begins, used: 0 })
    insert(levels, { at, used })
  }

  // forget removes entries that are too old to be shown.
  forget(now) {
    for (const list of [this.marks, ...Object.values(this.levels)]) {
      const first = list.findIndex((m) => m.at > now - kept)
      if (first > 0) list.splice(0, first)
    }
    this.bans = this.bans.filter(({ to }) => to > now - kept)
  }

  // served returns when requests of a client were served, for decisions by Redis since the last restart.
  served(client) {
    return this.marks.filter((m) => m.allowed && m.counted && m.client === client && m.at >= this.since).map((m) => m.served).sort((a, b) => a - b)
  }

  // servedIn counts the served requests of a client in (from, to].
  servedIn(client, from, to) {
    return this.marks.filter((m) => m.allowed && m.client === client && m.served > from && m.served <= to).length
  }

  // sentIn counts the requests that a client sent in (from, to].
  sentIn(client, from, to) {
    return this.marks.filter((m) => m.client === client && m.at > from && m.at <= to).length
  }

  waiting(now) {
    return this.marks.filter((m) => m.allowed && m.at <= now && m.served > now).length
  }

  inFlight(now) {
    return this.marks.filter((m) => m.allowed && m.at <= now && m.ends > now).length
  }
}

const none = () => ({ admitted: 0, denied: 0, second: 0, held: 0 })

// densest finds the period with most of the instants: their number, and the first and the last of them.
export function densest(times, period) {
  let best = { count: 0, from: 0, to: 0 }
  for (let first = 0, last = 0; last < times.length; last++) {
    while (times[last] - times[first] >= period - 0.01) first++ // instants are rounded to microseconds
    if (last - first + 1 > best.count) best = { count: last - first + 1, from: times[first], to: times[last] }
  }
  return best
}

// insert keeps a list in order of time. A new item is nearly always the latest.
function insert(list, item) {
  let i = list.length
  while (i > 0 && list[i - 1].at > item.at) i--
  list.splice(i, 0, item)
}
