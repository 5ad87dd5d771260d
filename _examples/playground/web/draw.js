// Draws one lane: the level of its bucket or window above, its requests in rows below.
const row = 15       // px, the height of a row
const font = '11px system-ui, "DejaVu Sans", sans-serif'
const cluster = 100  // ms: marks closer than that share one number

// colours returns the colours of the page, light or dark.
export function colours() {
  const style = getComputedStyle(document.documentElement)
  const names = ["ink", "muted", "line", "served", "denied", "held", "level", "edge", "band"]
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue("--" + name).trim()]))
}

// draw draws a view: {now, span, period, clients, capacity, limit, windows, colour}.
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
  c.font = font
  c.textBaseline = "middle"
  const rows = view.clients.length + 1
  const plot = {
    ...view, c, width, height, history,
    x: (at) => width - ((view.now - at) / view.span) * width,
    base: height - rows * row - 5,
    // Space above the limit for its number, and for units above it after a change.
    y: (level) => plot.base - (Math.min(level, view.capacity * 1.25) / view.capacity) * (plot.base - 20),
  }
  drawWindows(plot, drawBand(plot))
  for (const client of view.clients) drawLevel(plot, client)
  drawHeld(plot)
  drawLimit(plot)
  view.clients.forEach((client, i) => drawMarks(plot, client, true, height - (rows - i - 0.5) * row - 2))
  drawMarks(plot, null, false, height - 0.5 * row - 2)
}

// drawBand marks the period with most requests, if they are more than the limit. It returns the position of its text.
function drawBand({ c, x, history, now, span, period, limit, height, colour }) {
  const most = history.densest("a", now - span, now, period)
  if (most.count <= limit) return [0, 0]
  const [left, right] = [x(most.from) - 5, x(most.to) + 5]
  c.fillStyle = colour.band
  c.fillRect(left, 0, right - left, height)
  c.fillStyle = colour.denied
  c.font = "600 " + font
  const text = `${most.count} in ${((most.to - most.from) / 1000).toFixed(1)} s`
  const room = c.measureText(text).width
  const start = Math.max(4, Math.min((left + right - room) / 2, x(now) - room - 4))
  c.fillText(text, start, 9)
  c.font = font
  return [start, start + room]
}

// drawWindows marks where windows begin: clearly for a lane with windows, faintly for the others.
function drawWindows({ c, x, now, span, period, windows, height, colour, history }, taken) {
  for (let at = Math.floor(now / period) * period; at > now - span - period; at -= period) {
    c.strokeStyle = windows ? colour.edge : colour.line
    c.lineWidth = windows ? 1.4 : 1
    line(c, x(at), 0, x(at), height)
    if (!windows) continue
    const used = history.servedIn("a", at - 0.001, Math.min(at + period, now + 1) - 0.001)
    const text = `${used} in this window`
    const [from, to, room] = [Math.max(0, x(at)), Math.min(x(now), x(at + period)), c.measureText(text).width]
    c.fillStyle = colour.muted
    const start = (from + to - room) / 2
    if (used > 0 && to - from > room + 50 && (start > taken[1] + 8 || start + room < taken[0] - 8)) c.fillText(text, start, 9)
  }
}

function drawLevel({ c, x, y, base, now, span, colour, history }, client) {
  const points = (history.levels[client] ?? []).filter((p) => p.at > now - span - 1000 && p.at <= now)
  if (points.length < 2) return
  c.beginPath()
  for (const p of points) c.lineTo(x(p.at), y(p.used))
  c.strokeStyle = colour.level
  c.lineWidth = 1.6
  if (client === "b") c.setLineDash([2, 3])
  c.stroke()
  c.setLineDash([])
  if (client === "b") return
  c.lineTo(x(points.at(-1).at), base)
  c.lineTo(x(points[0].at), base)
  c.globalAlpha = 0.16
  c.fillStyle = colour.level
  c.fill()
  c.globalAlpha = 1
}

// drawHeld draws each held request as a line from its arrival to its turn, at its position in the queue.
function drawHeld({ c, x, y, now, span, period, limit, colour, history }) {
  c.strokeStyle = c.fillStyle = colour.held
  c.lineWidth = 1.4
  for (const m of history.marks) {
    if (!(m.delay > 0) || m.served < now - span || m.at > now) continue
    const height = y((m.delay / period) * limit)
    line(c, x(m.at), height, x(Math.min(m.served, now)), height)
    if (m.served <= now) dot(c, x(m.served), height)
  }
}

function drawLimit({ c, y, width, capacity, colour }) {
  c.strokeStyle = colour.muted
  c.lineWidth = 1
  c.setLineDash([3, 4])
  line(c, 0, y(capacity), width, y(capacity))
  c.setLineDash([])
  c.fillStyle = colour.muted
  c.fillText(String(capacity), 5, y(capacity) - 8)
}

// drawMarks draws a row: ticks for what was served, crosses for what was denied, and their number where they are close together.
function drawMarks({ c, x, width, now, span, clients, colour, history }, client, allowed, y) {
  const when = allowed ? "served" : "at"
  const marks = history.marks.filter((m) => m.allowed === allowed && (!client || m.client === client) && m[when] > now - span && m[when] <= now)
  if (allowed) marks.sort((a, b) => a.served - b.served)
  c.strokeStyle = c.fillStyle = allowed ? colour.served : colour.denied
  let first = 0
  marks.forEach((m, i) => {
    const at = x(m[when])
    c.lineWidth = 2
    if (allowed) line(c, at, y - 5, at, y + 5)
    else cross(c, at, y, 3)
    if (m.hand) {
      c.strokeStyle = colour.ink
      line(c, at - 3.5, y + 6.5, at + 3.5, y + 6.5)
      c.strokeStyle = allowed ? colour.served : colour.denied
    }
    const next = marks[i + 1]
    if (next && next[when] - m[when] < cluster) return
    const count = String(i - first + 1)
    const end = at + 7 + c.measureText(count).width
    if (i - first >= 2 && end <= (next ? x(next[when]) : width)) c.fillText(count, at + 5, y + 0.5)
    first = i + 1
  })
  if (!allowed || clients.length < 2) return
  c.fillStyle = colour.muted
  c.fillText(client, 4, y)
}

function line(c, x1, y1, x2, y2) {
  c.beginPath()
  c.moveTo(x1, y1)
  c.lineTo(x2, y2)
  c.stroke()
}

function cross(c, x, y, r) {
  line(c, x - r, y - r, x + r, y + r)
  line(c, x - r, y + r, x + r, y - r)
}

function dot(c, x, y) {
  c.beginPath()
  c.arc(x, y, 2.4, 0, 2 * Math.PI)
  c.fill()
}
