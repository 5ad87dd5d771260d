// This module draws one lane: the level of its bucket or window at the top, and its requests in rows below.
import { densest } from "./history.js"
import { drawTally } from "./lease.js"

const row = 14      // px, the height of a row
const strip = 17    // px at the top, for words that no line crosses
const gutter = 20   // px at the left, for the numbers of the axis
const near = 100    // ms: marks closer than that share one number
const size = "11px "

// colours returns the colors of the page, light or dark, and its typeface.
export function colours() {
  const style = getComputedStyle(document.documentElement)
  const names = ["font", "card", "ink", "muted", "line", "edge", "served", "denied", "held", "away", "broken"]
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue("--" + name).trim()]))
}

// draw draws a view, and returns the rectangles of the words, as [left, top, right, bottom]. The view is
// {now, span, period, rows, capacity, top, limit, fits, windows, slots, second, outages, promised, broken, tally, colour}.
export function draw(canvas, history, view) {
  const ratio = window.devicePixelRatio || 1
  const [width, height] = [canvas.clientWidth, canvas.clientHeight]
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio)
    canvas.height = Math.round(height * ratio)
  }
  const c = canvas.getContext("2d")
  c.setTransform(ratio, 0, 0, ratio, 0, 0)
  c.clearRect(0, 0, width, height)
  c.font = size + view.colour.font
  c.textBaseline = "middle"
  const plot = {
    ...view, c, width, height, history, left: gutter, right: width - 4, words: [],
    x: (at) => plot.right - ((view.now - at) / view.span) * (plot.right - gutter),
    base: height - (view.rows.length + 1) * row - 4,
    // Space above the limit for units above it after a change.
    y: (level) => plot.base - (Math.min(level, view.top * 1.2) / view.top) * (plot.base - strip - 8),
  }
  drawAxis(plot)
  c.save()
  c.beginPath()
  c.rect(gutter, 0, width - gutter, height)
  c.clip()
  drawTimes(plot, view.outages, plot.colour.away, "Redis stopped")
  drawTimes(plot, history.bans, plot.colour.denied, "banned", 0.13)
  drawBand(plot)
  drawWindows(plot)
  if (view.tally) drawTally({ ...plot, row })
  else drawRequests(plot)
  c.restore()
  if (view.rows.length > 1) view.rows.forEach((client, i) => number(plot, client, plot.base + 4 + (i + 0.5) * row))
  return plot.words
}

function drawRequests(plot) {
  const { rows, base, second } = plot
  for (const client of second ? ["a", "also"] : ["a", "b"]) drawLevel(plot, client)
  if (plot.slots) drawWork(plot)
  else drawWaiting(plot)
  drawLimit(plot)
  rows.forEach((client, i) => drawMarks(plot, client, true, base + 4 + (i + 0.5) * row))
  drawMarks(plot, null, false, base + 4 + (rows.length + 0.5) * row)
}

// drawAxis writes the limit and zero beside the plot, and the top of the plot if it is higher than the limit.
function drawAxis(plot) {
  const { c, left, right, base, y, capacity, top, colour } = plot
  if (top > capacity) number(plot, top, y(top))
  number(plot, capacity, y(capacity))
  number(plot, 0, base - 4)
  c.strokeStyle = colour.line
  c.lineWidth = 1
  line(c, left, base + 0.5, right, base + 0.5)
}

function number(plot, text, y) {
  const { c, left, colour } = plot
  put(plot, String(text), left - 5 - c.measureText(String(text)).width, y, { tone: colour.muted })
}

// say writes words into the strip at the top, centered at x.
function say(plot, text, x, { bold = false, tone = plot.colour.muted } = {}) {
  const { c, left, right } = plot
  c.font = (bold ? "600 " : "") + size + plot.colour.font
  const width = c.measureText(text).width
  put(plot, text, Math.max(left, Math.min(x - width / 2, right - width)), strip / 2, { tone })
  c.font = size + plot.colour.font
}

// put writes a text at x, unless it would touch another text. It erases lines that would cross the text.
function put({ c, words, right, colour }, text, x, y, { tone }) {
  const box = [x, y - 6, x + c.measureText(text).width, y + 6]
  const free = words.every(([l, t, r, b]) => box[0] > r + 3 || box[2] < l - 3 || box[1] >= b || box[3] <= t)
  if (!free || box[2] > right) return
  c.strokeStyle = colour.card
  c.lineWidth = 3
  c.lineJoin = "round"
  c.strokeText(text, x, y + 0.5)
  c.fillStyle = tone
  c.fillText(text, x, y + 0.5)
  words.push(box)
}

// drawTimes marks outages, or bans.
function drawTimes(plot, times, fill, text, alpha = 1) {
  const { c, x, left, height, now, span } = plot
  for (const { from, to } of times) {
    const [start, end] = [Math.max(left, x(from)), x(Math.min(to, now))]
    if (end <= start || from > now || to < now - span) continue
    c.fillStyle = fill
    c.globalAlpha = alpha
    c.fillRect(start, strip, end - start, height)
    c.globalAlpha = 1
    if (end - start > 70) say(plot, text, (start + end) / 2, { tone: alpha < 1 ? fill : plot.colour.muted })
  }
}

// drawBand marks the period with most requests, if they are more than the limit.
function drawBand(plot) {
  const { c, x, history, now, span, period, fits, height, promised, broken, colour } = plot
  if (!promised) return
  const most = densest(history.served("a").filter((at) => at > now - span && at <= now), period)
  if (most.count <= fits) return
  const [left, right] = [x(most.from) - 5, x(most.to) + 5]
  c.globalAlpha = broken ? 0.16 : 0.09
  c.fillStyle = broken ? colour.broken : colour.ink
  c.fillRect(left, strip, right - left, height)
  c.globalAlpha = 1
  say(plot, `${most.count} in ${((most.to - most.from) / 1000).toFixed(1)} s`, (left + right) / 2, { bold: true, tone: broken ? colour.broken : colour.ink })
}

// drawWindows marks where windows begin: clearly for a lane with windows, faintly for the others.
function drawWindows(plot) {
  const { c, x, now, span, period, windows, height, colour, history } = plot
  for (let at = Math.floor(now / period) * period; at > now - span - period; at -= period) {
    c.strokeStyle = windows ? colour.edge : colour.line
    c.lineWidth = 1
    line(c, Math.round(x(at)) + 0.5, strip, Math.round(x(at)) + 0.5, height)
    if (!windows) continue
    const used = history.servedIn("a", at - 0.001, Math.min(at + period, now + 1) - 0.001)
    const [from, to] = [Math.max(plot.left, x(at)), Math.min(x(now), x(at + period))]
    if (used > 0 && to - from > 100) say(plot, `${used} in this window`, (from + to) / 2)
  }
}

// drawLevel draws the curve of a client, with gaps where nothing was counted.
function drawLevel({ c, x, y, base, now, span, colour, history, capacity }, client) {
  const scale = client === "also" ? capacity : 1
  const points = (history.levels[client] ?? []).filter((p) => p.at > now - span - 1000 && p.at <= now)
  c.strokeStyle = c.fillStyle = colour.served
  c.lineWidth = 1.5
  for (const part of split(points)) {
    c.setLineDash(client !== "a" ? [2, 3] : [])
    c.beginPath()
    for (const p of part) c.lineTo(x(p.at), y(scale * p.used))
    c.globalAlpha = 0.75
    c.stroke()
    c.setLineDash([])
    if (client === "a") {
      c.lineTo(x(part.at(-1).at), base)
      c.lineTo(x(part[0].at), base)
      c.globalAlpha = 0.13
      c.fill()
    }
    c.globalAlpha = 1
  }
}

const silence = 1500 // ms: if there is no level for this long, nothing was counted

function split(points) {
  const parts = [[]]
  for (const p of points) {
    if (p.used === null || p.at - (parts.at(-1).at(-1)?.at ?? p.at) > silence) parts.push([])
    if (p.used !== null) parts.at(-1).push(p)
  }
  return parts.filter((part) => part.length > 1)
}

// drawWaiting draws each request that waited as a line from its arrival to its turn, at its position in the queue.
function drawWaiting({ c, x, y, now, span, period, limit, colour, history }) {
  c.strokeStyle = c.fillStyle = colour.held
  c.lineWidth = 1.25
  for (const m of history.marks) {
    if (!(m.delay > 0) || m.served < now - span || m.at > now) continue
    const height = y((m.delay / period) * limit)
    line(c, x(m.at), height, x(Math.min(m.served, now)), height)
    if (m.served <= now) diamond(c, x(m.served), height, 3)
  }
}

// drawWork draws each request from its arrival to the end of its work, at its place among the slots.
function drawWork({ c, x, y, now, span, colour, history }) {
  c.strokeStyle = colour.served
  c.lineWidth = 1.25
  for (const m of history.marks) {
    if (!m.allowed || m.used < 0 || m.ends < now - span || m.at > now) continue
    line(c, x(m.at), y(m.used), x(Math.min(m.ends, now)), y(m.used))
    if (m.ends <= now) line(c, x(m.ends), y(m.used) - 2, x(m.ends), y(m.used) + 2)
  }
}

function drawLimit({ c, y, left, right, capacity, colour }) {
  c.strokeStyle = colour.ink
  c.globalAlpha = 0.7
  c.lineWidth = 1
  c.setLineDash([5, 4])
  line(c, left, y(capacity), right, y(capacity))
  c.setLineDash([])
  c.globalAlpha = 1
}

// drawMarks draws a row: dots for served requests, crosses for denied ones, and their number where they are close together.
function drawMarks(plot, client, allowed, y) {
  const { c, x, right, now, span, colour, history } = plot
  const when = allowed ? "served" : "at"
  const marks = history.marks.filter((m) => m.allowed === allowed && (!client || m.row === client) && m[when] > now - span && m[when] <= now)
  if (allowed) marks.sort((a, b) => a.served - b.served)
  let first = 0
  marks.forEach((m, i) => {
    const at = x(m[when])
    if (allowed) dot(c, at, y, 3, colour.served)
    else cross(c, at, y, 2.6, colour.denied)
    if (m.hand) {
      c.strokeStyle = colour.ink
      c.lineWidth = 1.5
      line(c, at - 3, y + 6, at + 3, y + 6)
    }
    const next = marks[i + 1]
    if (next && next[when] - m[when] < near) return
    const count = String(i - first + 1)
    const end = at + 10 + c.measureText(count).width
    if (i - first >= 2 && end <= (next ? x(next[when]) : right)) put(plot, count, at + 6, y, { tone: allowed ? colour.served : colour.denied })
    first = i + 1
  })
}

function line(c, x1, y1, x2, y2) {
  c.beginPath()
  c.moveTo(x1, y1)
  c.lineTo(x2, y2)
  c.stroke()
}

function dot(c, x, y, r, colour) {
  c.beginPath()
  c.arc(x, y, r, 0, 2 * Math.PI)
  c.fillStyle = colour
  c.fill()
}

function cross(c, x, y, r, colour) {
  c.strokeStyle = colour
  c.lineWidth = 1.75
  line(c, x - r, y - r, x + r, y + r)
  line(c, x - r, y + r, x + r, y - r)
}

function diamond(c, x, y, r) {
  c.beginPath()
  for (const [dx, dy] of [[0, -r], [r, 0], [0, r], [-r, 0]]) c.lineTo(x + dx, y + dy)
  c.fill()
}
