// This module knows what each algorithm promises, and checks whether the promise was kept.
import { densest } from "./history.js"

// verdict returns how many requests a lane served at most in any period, why they were admitted, and whether that breaks the
// algorithm's own promise. times are the times at which the requests were served, in order. rate and burst are in requests, and may
// be fractions if a request costs several units. For slots, the number is how many requests were in flight at once.
export function verdict(lane, times, { rate, burst }, period) {
  const most = densest(times, lane.slots ? work : period)
  const judge = lane.slots ? flight : lane.leaky ? queue : lane.second ? both : lane.bucket ? bucket : lane.exact ? log : windows
  return { most, ...judge(times, most, { rate, burst, period, lane }) }
}

// work is how long a request is in flight at least, in the lane that limits requests in flight.
export const work = 1000 // ms

// Slots admit no more requests at a time than there are slots.
function flight(times, most, { rate }) {
  return { broken: most.count > rate, because: "free when done" }
}

// Both limits must be kept: the bucket, and the server's second limit of one and a half times as much in three periods.
function both(times, most, { rate, burst, period }) {
  const first = bucket(times, most, { rate, burst, period })
  const longer = densest(times, 3 * period).count
  return { broken: first.broken || longer > 1.5 * rate, because: `${longer} at most in ${3 * period / 1000} s` }
}

// A sliding window log admits no more than the limit in any period.
function log(times, most, { rate }) {
  return { broken: most.count > rate, because: "never more in any 5 s" }
}

// A fixed window admits no more than the limit until the next window begins.
function windows(times, most, { rate, period, lane }) {
  const counts = new Map()
  for (const at of times) counts.set(Math.floor(at / period), (counts.get(Math.floor(at / period)) ?? 0) + 1)
  const broken = Math.max(0, ...counts.values()) > rate
  if (most.count <= rate) return { broken, because: "never more in a window" }
  const boundary = Math.floor(most.to / period) * period
  const after = times.filter((at) => at >= Math.max(boundary, most.from) && at <= most.to).length
  if (lane.windows) return { broken, because: `${most.count - after} + ${after}, around a boundary` }
  const fits = Math.floor(rate)
  return { broken, because: `${fits} + ${most.count - fits}: it estimates the log` }
}

// A bucket admits its burst, and the units that are refilled meanwhile.
function bucket(times, most, { rate, burst, period }) {
  const broken = overflows(times, burst, period / rate)
  const fits = Math.floor(burst)
  if (most.count <= fits) return { broken, because: `within the burst of ${fits}` }
  return { broken, because: `burst ${fits} + ${most.count - fits} refilled` }
}

// A queue serves one request at a time.
function queue(times, most, { rate, period }) {
  return { broken: overflows(times, 1, period / rate), because: `one each ${+(period / 1000 / rate).toFixed(2)} s` }
}

// overflows reports whether a bucket of a given size, from which a unit leaks in each interval, would overflow.
function overflows(times, size, interval) {
  let [level, before] = [0, -Infinity]
  return times.some((at) => {
    level = Math.max(0, level - (at - before) / interval) + 1
    before = at
    return level > size + 0.01 // instants are rounded to microseconds
  })
}
