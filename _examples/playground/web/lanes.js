// This module is the lanes, one for each limiter: their names, their texts on the page, and the summary of all lanes.
import { densest, History } from "./history.js"
import { Tally } from "./lease.js"
import { verdict, work } from "./promise.js"

const docs = "https://github.com/redislimit/redislimit/blob/main/docs/"

// texts are the names of lanes, their descriptions on the page, and the sections of the documents about them.
const texts = {
  fixed_window: ["Fixed window", "Counts, and forgets when the window ends.", "algorithms.md#fixedwindow"],
  sliding_window_log: ["Sliding window log", "Remembers each request: always exact.", "algorithms.md#slidingwindowlog"],
  sliding_window_counter: ["Sliding window counter", "Estimates the log from two counts.", "algorithms.md#slidingwindowcounter"],
  token_bucket: ["Token bucket", "Lets a burst pass, and refills at the rate.", "algorithms.md#tokenbucket"],
  gcra: ["GCRA", "A token bucket by its other name.", "algorithms.md#gcra"],
  leaky_bucket: ["Leaky bucket", "Queues a burst, and serves it evenly.", "algorithms.md#leakybucket"],
  in_flight: ["In flight", "Counts work that goes on: each takes 1 s.", "algorithms.md#inflight"],
  two_limits: ["Two limits", "A token bucket, and a log of 15 s, dotted: both must admit.", "algorithms.md#several-limits-at-once"],
  one_redis: ["Over one Redis", "A row for each process. All of them count together.", "operating.md#what-is-stored-in-redis"],
  by_itself: ["Each by itself", "The same in memory: none knows of the others.", "operating.md#what-is-stored-in-redis"],
  fail_local: ["Fail local, the default", "Each process goes on limiting by itself.", "operating.md#when-redis-does-not-answer"],
  fail_open: ["Fail open", "Everything passes.", "operating.md#when-redis-does-not-answer"],
  fail_closed: ["Fail closed", "Nothing passes: logins and payments.", "operating.md#when-redis-does-not-answer"],
  lease: ["Token bucket with a lease", "Columns: decided in this process. Dots: Redis was asked.", "leases.md#for-whom"],
}

// makeLanes makes the lanes that the server has. A lane without texts here shows its name only.
export function makeLanes(described, period) {
  const template = document.getElementById("lane")
  return described.map(({ name: id, group, bucket, delays, windows, slots, second, members }) => {
    const [name, why, about] = texts[id] ?? [capital(id.replaceAll("_", " ")), "", "algorithms.md"]
    const section = template.content.firstElementChild.cloneNode(true)
    const title = section.querySelector("h3")
    section.dataset.lane = title.id = id
    title.textContent = name
    section.setAttribute("aria-labelledby", id)
    section.querySelector(".why").textContent = why
    section.querySelector(".code").setAttribute("aria-label", `Copy as Go: ${name}`)
    document.getElementById(group).append(section)
    return {
      id, name, group, bucket, leaky: delays, windows, slots, second, exact: id === "sliding_window_log", docs: docs + about,
      rows: Array.from({ length: members }, (_, i) => String(i + 1)),
      section, history: new History({ window: windows ? period : 0, work: slots ? work : 0 }), tally: new Tally(), canvas: section.querySelector("canvas"),
    }
  })
}

const capital = (text) => text[0].toUpperCase() + text.slice(1)

// showLane writes the numbers of a lane into the page.
export function showLane(lane, now, page) {
  const { history, section } = lane
  const [count, more, because] = [".count", ".more", ".because"].map((name) => section.querySelector(name))
  const texts = { algorithms: aboutAlgorithm, processes: aboutProcesses, policies: aboutPolicy, leases: aboutLease }[lane.group](lane, now, page)
  write(count, texts.count)
  write(more, [texts.more ?? ""])
  write(because, [texts.because ?? ""])
  Object.assign(section.dataset, history.totals)
  lane.canvas.setAttribute("aria-label", `${lane.name}: ${[count, more, because].map((e) => e.textContent).filter((text) => text).join(", ")}`)
}

function aboutAlgorithm(lane, now, { period, config, away }) {
  const { history, section } = lane
  lane.verdict = verdict(lane, history.served("a"), inRequests(config), period)
  const { most, broken, because } = lane.verdict
  const { denied, second } = history.totals
  section.dataset.peak = most.count
  const ban = history.banned(now)
  const banned = ban && `banned for ${Math.ceil((ban.to - now) / 1000)} s`
  section.classList.toggle("banned", Boolean(ban))
  return {
    count: [strong(most.count, broken), lane.slots ? " at once" : ` at most in ${period / 1000} s`],
    more: lane.leaky ? `waiting ${history.waiting(now)}, denied ${denied}`
      : lane.slots ? `in flight ${history.inFlight(now)}, denied ${denied}`
        : lane.second ? `denied ${denied}, ${second} by the second`
          : `denied ${denied}`,
    because: broken ? "breaks its promise: a bug!" : banned ?? (away ? "this process counts" : most.count > 0 ? because : ""),
  }
}

// inRequests returns the numbers of a configuration in requests, which may cost several units each.
export const inRequests = ({ rate, burst, cost }) => ({ rate: rate / cost, burst: burst / cost })

function aboutProcesses(lane, now, { period, config, away, turned }) {
  const { history } = lane
  const from = Math.max(now - period, turned, history.since)
  const broken = lane.id === "one_redis" && densest(history.served("a"), period).count > config.rate
  lane.verdict = { broken }
  const together = away ? "each takes a third of the limit" : "Redis counts for all of them"
  return {
    count: [strong(history.servedIn("a", from, now), broken), ` of ${history.sentIn("a", from, now)} served`],
    more: `limit ${config.rate}`,
    because: broken ? "breaks its promise: a bug!" : lane.id === "one_redis" ? together : "each admits the limit",
  }
}

const deciders = { fail_local: "this process counts", fail_open: "nobody counts", fail_closed: "nobody may pass" }

function aboutPolicy(lane, now, { period, away, turned }) {
  const from = Math.max(now - period, turned) // since Redis stopped or answered again
  const { history } = lane
  return {
    count: [strong(history.servedIn("a", from, now)), ` of ${history.sentIn("a", from, now)} served`],
    because: away ? deciders[lane.id] : "Redis counts",
  }
}

function aboutLease(lane, now, { period, away }) {
  const { leased, redis, other } = lane.tally.sums(now - period, now)
  const all = leased + redis + other
  if (all === 0) return { count: ["nothing yet"] }
  lane.section.dataset.share = leased / all
  if (away && other > 0) return { count: [strong(other), ` of ${all} decided by the outage policy`], because: "leases are spent to their end" }
  return {
    count: [strong(`${(100 * leased / all).toFixed(1)} %`), ` of ${all} decisions never left the process`],
    because: `Redis was asked ${redis} times in ${period / 1000} s`,
  }
}

function strong(text, broken = false) {
  const e = document.createElement("strong")
  e.textContent = text
  e.classList.toggle("broken", broken)
  return e
}

// write replaces the content of an element where it differs.
function write(element, parts) {
  const text = parts.map((part) => part.textContent ?? part).join("")
  if (element.textContent !== text) element.replaceChildren(...parts)
}

// summary describes what the charts show.
export function summary(lanes, { period, config }) {
  const { shape, traffic, cost, ban } = config
  const { rate } = inRequests(config)
  const algorithms = lanes.filter((lane) => lane.group === "algorithms")
  const limit = `${config.rate} ${cost > 1 ? "units " : ""}per ${period / 1000} s${cost > 1 ? `, ${cost} each` : ""}`
  const fixed = algorithms.find((lane) => lane.windows)
  if (cost > config.rate) return `A request costs ${cost} units, and the limit is ${config.rate} in ${period / 1000} s: it can never be admitted.`
  if (ban) return `Who goes beyond ${limit} is banned for 6 s, and the next time for 12 s: meanwhile everything is denied.`
  switch (shape) {
    case "hand":
      return `No traffic but yours: press Send one, or Send ten. The limit is ${limit}.`
    case "clients": {
      const denied = algorithms.reduce((n, lane) => n + lane.history.marks.filter((m) => m.client === "b" && !m.allowed).length, 0)
      return `Each client has a limit of its own: however much a asks for, b was denied ${denied === 0 ? "nothing" : denied + " times"}.`
    }
    case "steady":
      if (traffic <= rate) return `Steady traffic within the limit of ${limit}: all algorithms let all of it pass.`
      return `Steady traffic of ${traffic} per ${period / 1000} s, with a limit of ${limit}: all deny about the same number, and differ in which.`
    case "bursts":
      return `${traffic} at once, with a limit of ${limit}: the leaky bucket spreads them, one each ${+(period / 1000 / rate).toFixed(2)} s; ` +
        "the others serve what fits at once."
  }
  const { count = 0, from, to } = fixed?.verdict?.most ?? {}
  if (count <= rate) return "Bursts on both sides of a window boundary: watch the fixed window."
  return `Around a window boundary the fixed window let ${count} requests through in ${seconds(to - from)}: its limit is ${limit}. ` +
    "The others remember what has just passed."
}

const seconds = (ms) => `${(ms / 1000).toFixed(1)} s`
