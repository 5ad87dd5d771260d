// Fills the page with data.json, every 2 seconds, and posts what is asked of a key. Keys are chosen by clients: all text
// is written as text, never as HTML.
const $ = (id) => document.getElementById(id)
const every = 2000 // ms
const here = location.origin + location.pathname // without the name and password that an address may have
let latest = { limiters: [], kinds: [] }
let found // what was looked up, as the server says

// make returns an element with a class, and texts or elements in it.
function make(tag, name, ...inside) {
  const e = document.createElement(tag)
  if (name) e.className = name
  e.append(...inside)
  return e
}

// keyText returns a key in which nothing is invisible or changes what is around it.
function keyText(key) {
  const text = key.replace(/[^\p{L}\p{M}\p{N}\p{P}\p{S} ]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`)
  return make("bdi", "", text)
}

const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]]

function duration(seconds) {
  if (seconds < 0) return "never"
  const [size, unit] = units.find(([size]) => seconds >= size) ?? [1, "s"]
  const n = seconds / size
  return `${n < 10 ? Math.round(n * 10) / 10 : Math.round(n)} ${unit}`
}

const number = (n) => n >= 100 ? Math.round(n).toLocaleString("en") : String(Math.round(n * 10) / 10)
const sum = (list) => list.reduce((a, b) => a + b, 0)

// poll asks for the data, unless nobody looks.
async function poll() {
  if (!document.hidden) await refresh()
  setTimeout(poll, every)
}

async function refresh() {
  try {
    const response = await fetch(here + "data.json", { cache: "no-store" })
    if (!response.ok) throw new Error(response.status === 403 ? "Not allowed" : `Status ${response.status}`)
    const data = await response.json()
    const other = latest.process && latest.process !== data.process
    latest = data
    show(data)
    tell("live", other ? "Another process answers" : "Live")
  } catch (error) {
    tell("lost", error instanceof TypeError ? "Not connected" : error.message)
  }
}

function tell(state, text) {
  document.body.dataset.state = state
  if ($("state").textContent !== text) $("state").textContent = text // it is read aloud
  $("state").className = state
}

function show(data) {
  $("process").textContent = `What process ${data.process} decided`
  choices($("limiter"), data.limiters.map(({ name }) => [name, name]))
  if (!$("parts").firstChild) addPart()
  $("go").disabled = data.limiters.length === 0
  const main = $("limiters")
  const gone = [...main.children].filter((e) => !data.limiters.some(({ name }) => name === e.dataset.limiter))
  for (const e of gone) e.remove()
  for (const [i, limiter] of data.limiters.entries()) {
    let card = [...main.children].find((e) => e.dataset.limiter === limiter.name)
    if (!card) {
      card = $("card").content.firstElementChild.cloneNode(true)
      card.dataset.limiter = limiter.name
      card.querySelector("h2").textContent = limiter.name
      main.insertBefore(card, main.children[i] ?? null)
    }
    fill(card, limiter)
  }
  if (data.limiters.length === 0) main.append(make("p", "card", "No limiter was added to the Watch: watch.Add(lim)."))
}

function fill(card, l) {
  const part = (name) => card.querySelector(name)
  part(".limits").replaceChildren(...l.limits.flatMap((text) => [text, document.createElement("br")]).slice(0, -1))
  const lately = (list) => sum(list.slice(-10)) / 10
  const [all, denied] = [sum(l.decisions), sum(l.denied)]
  part(".numbers").replaceChildren(
    make("span", "", make("strong", "", number(lately(l.decisions))), " decisions/s"),
    make("span", "denied", make("strong", "", number(lately(l.denied))), " denied/s"),
    make("span", "", make("strong", "", all ? `${number(100 * denied / all)} %` : "–"), " denied in 5 min"),
    make("span", "", make("strong", "", l.p50 ? duration(l.p50) : "–"), " median, ", make("strong", "", l.p99 ? duration(l.p99) : "–"), " p99"),
  )
  chart(part("svg"), part(".most"), l)
  const names = { redis: "Redis", lease: "leases", deny_cache: "deny cache", memory: "memory", fallback: "this process (outage)", none: "nobody (FailOpen)", uncounted: "not counted", error: "failed" }
  const shares = Object.entries(l.sources).sort(([, a], [, b]) => b - a).map(([name, n]) => `${names[name] ?? name} ${number(100 * n / all)} %`)
  part(".sources").textContent = shares.join(", ") || "nothing yet"
  const servers = l.servers.map((s) => {
    const words = { up: "answers", doubted: "is in doubt", down: `does not answer, ${l.outage} decides` }[s.state]
    const since = s.since ? ` (${duration((Date.parse(latest.at) - Date.parse(s.since)) / 1000)}): ${s.error ?? ""}` : ""
    return make("span", `server ${s.state}`, `${s.addr || "the client's server"} ${words}${since}`)
  })
  part(".servers").replaceChildren(...servers.length ? servers : ["none: limits of this process alone"])
  keys(part(".denied.keys"), l, l.mostDenied)
  keys(part(".asked.keys"), l, l.mostAsked)
  part(".since").textContent = `Keys since ${new Date(l.keysSince).toLocaleTimeString()}.`
}

function chart(svg, most, l) {
  const top = Math.max(...l.decisions, 1)
  const y = (n) => 60 - 50 * n / top
  const paths = (list, name) => {
    const points = list.map((n, i) => `${i * 300 / (list.length - 1)} ${y(n)}`)
    const gone = (i) => !list[i - 1] && !list[i] && !list[i + 1] // there is no line where there is nothing
    svg.querySelector(`.${name}-line`).setAttribute("d", points.map((p, i) => gone(i) ? "" : (i === 0 || gone(i - 1) ? "M" : "L") + p).join(""))
    svg.querySelector(`.${name}-area`).setAttribute("d", `M0 60L${points.join("L")}L300 60Z`)
  }
  paths(l.decisions, "served")
  paths(l.denied, "denied")
  most.textContent = `${number(top)}/s`
  svg.setAttribute("aria-label", `${sum(l.decisions)} decisions of ${l.name} in 5 minutes, ${sum(l.denied)} of them denied; at most ${top} in a second`)
}

// keys fills a list, unless somebody is about to choose from it.
function keys(list, limiter, all) {
  if (list.matches(":focus-within") || (matchMedia("(hover: hover)").matches && list.matches(":hover"))) return
  const most = all[0]?.count ?? 1
  const rows = all.map((k) => {
    const name = k.id ? make("button", "key", keyText(k.key)) : make("span", "key", keyText(k.key), "…")
    if (k.id) {
      name.type = "button"
      name.addEventListener("click", () => post("lookup", { limiter: limiter.name, id: k.id }))
    }
    name.title = name.textContent
    const row = make("li", "", name, make("span", "", k.over ? `${number(k.count - k.over)}–${number(k.count)}` : number(k.count)))
    row.style.setProperty("--share", `${100 * k.count / most}%`)
    return row
  })
  list.replaceChildren(...rows.length ? rows : [make("li", "none", "none")])
}

// choices fills a select, and keeps what is chosen.
function choices(select, all) {
  const text = JSON.stringify(all)
  if (select.dataset.all === text) return
  const chosen = select.value
  select.dataset.all = text
  select.replaceChildren(...all.map(([value, label]) => new Option(label, value)))
  if (all.some(([value]) => value === chosen)) select.value = chosen
}

function addPart() {
  const part = $("part").content.firstElementChild.cloneNode(true)
  const by = part.querySelector(".by")
  choices(by, latest.kinds.map((k) => [k.by, k.label]))
  const adapt = () => {
    const kind = latest.kinds.find((k) => k.by === by.value)
    part.querySelector(".name").hidden = !kind.name
    part.querySelector(".name span").textContent = `Its ${kind.name}`
    part.querySelector(".value").hidden = !kind.value
    part.querySelector(".value input").placeholder = kind.value ?? ""
  }
  by.addEventListener("change", adapt)
  adapt()
  part.querySelector(".drop").addEventListener("click", () => {
    part.remove()
    countParts()
    $("add").focus()
  })
  $("parts").append(part)
  countParts()
  return part
}

// countParts names the parts of a joined key.
function countParts() {
  const parts = [...$("parts").children]
  for (const [i, part] of parts.entries()) {
    part.querySelector("legend").textContent = parts.length > 1 ? `Part ${i + 1} of a joined key` : "Key"
    part.querySelector(".drop").hidden = parts.length === 1
  }
}

$("add").addEventListener("click", () => addPart().querySelector(".by").focus())

$("lookup").addEventListener("submit", (event) => {
  event.preventDefault()
  const parts = [...$("parts").children].map((part) => ({
    by: part.querySelector(".by").value,
    name: part.querySelector(".name input").value,
    value: part.querySelector(".value input").value,
  }))
  post("lookup", { limiter: $("limiter").value, parts })
})

// post asks the server to do something to a key, and shows how the key is then.
async function post(what, asked) {
  say("")
  try {
    const response = await fetch(here + what, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(asked), cache: "no-store",
    })
    const answer = await response.json().catch(() => ({ error: `Status ${response.status}` }))
    if (!response.ok) throw new Error(answer.error)
    showKey(answer)
    $("found").focus()
    say({ lookup: "", reset: "Reset.", block: "Blocked.", unblock: "Unblocked." }[what])
  } catch (error) {
    say(error.message, "wrong")
  }
}

function say(text, how = "") {
  $("message").textContent = text
  $("message").className = how
}

function showKey(s) {
  found = s
  const limiter = latest.limiters.find(({ name }) => name === s.limiter)
  $("limiter").value = s.limiter
  $("found").hidden = false
  $("found-key").replaceChildren(keyText(s.key))
  const until = s.bannedUntil && new Date(s.bannedUntil).toLocaleString()
  const verdict = s.bannedUntil ? `Banned for ${duration(s.retryAfter)}, until ${until}`
    : s.source === "none" ? "Admitted: Redis does not answer, and FailOpen decides"
    : s.allowed ? "The next request is admitted"
    : s.retryAfter < 0 ? "Denied" : `Denied for ${duration(s.retryAfter)}`
  $("verdict").textContent = verdict
  $("verdict").className = s.allowed ? "" : "no"
  $("found-limits").replaceChildren(...s.limits.map((l) => {
    if (l.unlimited) return make("div", l.allowed ? "limit" : "limit no", make("code", "", l.limit))
    const meter = make("meter")
    const used = l.capacity ? { max: l.capacity, value: l.capacity - l.remaining } : { max: 1, value: 1 } // a limit of 0 is used up
    Object.assign(meter, { ...used, ariaLabel: `used of ${l.limit}` })
    const words = [`${number(l.remaining)} of ${number(l.capacity)} left`]
    if (l.held) words.push(`${number(l.held)} held`)
    if (!s.bannedUntil && !l.allowed && l.retryAfter > 0) words.push(`denies for ${duration(l.retryAfter)}`)
    if (!s.bannedUntil && l.resetAfter > 0) words.push(`whole again in ${duration(l.resetAfter)}`)
    return make("div", l.allowed ? "limit" : "limit no", make("code", "", l.limit), meter, make("span", "", words.join(", ")))
  }))
  const who = { redis: "Redis says so", memory: "The memory of this process says so", fallback: "This process says so: Redis does not answer", uncounted: "This process says so: no count is needed" }[s.source] ?? ""
  $("found-source").textContent = who && `${who}, of limiter ${s.limiter}, at ${new Date(s.at).toLocaleTimeString()}.`
  $("block").disabled = !limiter?.bans
  $("no-bans").hidden = Boolean(limiter?.bans)
  $("unblock").hidden = !s.bannedUntil
}

// Each change is confirmed: the words say what it does.
const changes = {
  reset: ["Reset this key?", "What it has used is forgotten, for all processes. A ban stays, and so does what is held.", "Reset"],
  block: ["Block this key?", "All its requests are denied, in all processes, whatever the limits say.", "Block"],
  unblock: ["Unblock this key?", "Its ban ends, and the next one begins at the first level.", "Unblock"],
}

for (const [what, [title, text, yes]] of Object.entries(changes)) {
  $(what).addEventListener("click", () => {
    const { limiter, id } = found
    $("confirm-title").textContent = title
    $("confirm-key").replaceChildren(keyText(found.key), ` of ${limiter}`)
    $("confirm-text").textContent = text
    $("confirm-for").hidden = what !== "block"
    $("confirm-yes").textContent = yes
    $("confirm").returnValue = ""
    $("confirm").onclose = () => {
      if ($("confirm").returnValue === "yes") post(what, what === "block" ? { limiter, id, for: $("for").value } : { limiter, id })
    }
    $("confirm").showModal()
  })
}

poll()
