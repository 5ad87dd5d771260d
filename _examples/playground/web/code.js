// This module is the dialog that shows the Go program of a limit, and copies it.
const byId = (id) => document.getElementById(id)

export class Code {
  programs = {} // by lane

  constructor() {
    byId("code-copy").addEventListener("click", () => this.copy())
    byId("code-close").addEventListener("click", () => byId("code").close())
  }

  // open shows and copies the program of a lane.
  open(lane) {
    byId("code-title").textContent = `${lane.name} in Go`
    byId("code-text").replaceChildren(...(this.programs[lane.id] ?? "").split(/(?<=\n)/).map(part))
    byId("code-docs").href = lane.docs
    byId("code-docs").textContent = { algorithms: "About this algorithm", processes: "What is stored in Redis", policies: "About outages", leases: "About leases" }[lane.group]
    byId("code").showModal()
    this.copy()
  }

  async copy() {
    try {
      await navigator.clipboard.writeText(byId("code-text").textContent)
      byId("code-state").textContent = "Copied: a whole program, with this limit for each IP address."
    } catch { // no permission, or not a secure context
      getSelection().selectAllChildren(byId("code-text"))
      byId("code-state").textContent = "Selected: copy it with Ctrl+C or ⌘C."
    }
  }
}

// part returns a line of the program. The limit and its options are highlighted.
function part(line) {
  if (!line.startsWith("\t\tcore.")) return line
  const strong = document.createElement("strong")
  strong.textContent = line
  return strong
}
