// The lanes, one for each algorithm: their names, their texts on the page, and the summary of all.
import { History } from "./history.js"

// texts are the names of algorithms, and what the page says of them.
const texts = {
  fixed_window: ["Fixed window", "Counts in each window, and forgets at its end."],
  sliding_window_log: ["Sliding window log", "Remembers each request: exact in any period."],
  sliding_window_counter: ["Sliding window counter", "Adds the part of the window before that still counts."],
  token_bucket: ["Token bucket", "Lets a burst pass, and refills at the rate."],
  gcra: ["GCRA", "Answers as a token bucket, and keeps one instant only."],
  leaky_bucket: ["Leaky bucket", "Queues a burst, and serves it evenly."],
}

// makeLanes makes a lane of each algorithm that the server has. One without texts here has its name only.
export function makeLanes(parent, algorithms) {
  const template = document.getElementById("lane")
  return algorithms.map(({ name: algorithm, bucket, delays, windows }) => {
    const [name, why] = texts[algorithm] ?? [capital(algorithm.replaceAll("_", " ")), ""]
    const section = template.content.firstElementChild.cloneNode(true)
    const title = section.querySelector("h2")
    section.dataset.algorithm = algorithm
    title.id = algorithm
    title.textContent = name
    section.setAttribute("aria-labelledby", algorithm)
    section.querySelector(".why").textContent = why
    parent.append(section)
    return {
      algorithm, name, section, history: new History(), canvas: section.querySelector("canvas"), bucket, leaky: delays, windows,
    }
  })
}

const capital = (text) => text[0].toUpperCase() + text.slice(1)

// showLane writes the numbers of a lane into the page.
export function showLane(lane, now, period, config) {
  const { history, section } = lane
  const count = history.servedIn("a", now - period, now)
  const seconds = period / 1000
  history.peak = Math.max(history.peak, history.densest("a", history.since, now, period).count)
  section.dataset.peak = history.peak
  section.dataset.admitted = history.totals.admitted
  section.dataset.denied = history.totals.denied
  section.dataset.held = history.totals.held
  const words = section.querySelector(".count")
  words.replaceChildren(
    `${lane.leaky ? "Served" : "Admitted"} in the last ${seconds} s: `, strong(count, count > config.rate), ` of ${config.rate}`)
  if (config.shape === "clients") words.append(", b ", strong(history.servedIn("b", now - period, now), false))
  const more = [lane.leaky ? `held ${history.heldAt(now)}` : `most ${history.peak}`, `denied ${history.totals.denied}`]
  section.querySelector(".more").textContent = more.join(", ")
  lane.canvas.setAttribute("aria-label", `${lane.name}: ${words.textContent}, ${more.join(", ")}`)
}

function strong(text, over) {
  const e = document.createElement("strong")
  e.textContent = text
  e.classList.toggle("over", over)
  return e
}

// summary describes what the charts show since the configuration last changed.
export function summary(lanes, period, config) {
  const active = lanes.filter((lane) => lane.history.peak > 0)
  if (active.length === 0) return config.shape === "hand" ? "No traffic but yours: press Hammer." : "Watch what comes."
  const sentences = []
  const fixed = active.find((lane) => lane.windows && lane.history.peak > config.rate)
  if (fixed) sentences.push(`Around a boundary the fixed window let ${fixed.history.peak} requests through in ${period / 1000} s, with a limit of ${config.rate}.`)
  const others = [...Map.groupBy(active.filter((lane) => lane !== fixed && !lane.leaky), (lane) => lane.history.peak)]
  if (others.length > 0) sentences.push(`Most in any ${period / 1000} s: ${others.map(([peak, group]) => `${names(group)} ${peak}`).join("; ")}.`)
  if (active.some((lane) => lane.leaky && lane.history.totals.held > 0)) {
    sentences.push(`The leaky bucket held what came at once, and served one every ${period / 1000 / config.rate} s.`)
  }
  if (config.shape === "clients") {
    const denied = lanes.reduce((n, lane) => n + lane.history.marks.filter((m) => m.client === "b" && !m.allowed).length, 0)
    sentences.push(`Client b has a budget of its own: denied ${denied} times.`)
  }
  return sentences.join(" ")
}

function names(lanes) {
  const list = lanes.map((lane) => (lane.name === "GCRA" ? lane.name : lane.name.toLowerCase()))
  return list.length < 2 ? list.join() : list.slice(0, -1).join(", ") + " and " + list.at(-1)
}
