// The form, the address that keeps its question, and the answers of worker.js.
const found = id => document.getElementById(id)
const form = found("ask"), state = found("state")
let worker, asked = 0

function say(text, fault = false) {
  state.textContent = text
  state.hidden = !text
  state.classList.toggle("fault", fault)
}

function question() {
  const given = [...new FormData(form)].map(([name, value]) => [name, value.trim()]).filter(([, value]) => value)
  return Object.fromEntries(given.filter(([name]) => !(name === "M" && form.hardware.value)))
}

const written = given => Object.entries(given).map(([name, value]) =>
  `${name}=${encodeURIComponent(value).replaceAll("%3A", ":").replaceAll("%2C", ",")}`).join("&")

function read() {
  const given = new URLSearchParams(location.hash.slice(1).replaceAll("+", "%2B"))
  if (![...given].length) return
  for (const field of form.elements) if (field.name) field.value = ""
  for (const [name, value] of given) {
    const field = form.elements[name]
    if (field?.tagName === "SELECT" && ![...field.options].some(one => one.value === value)) field.add(new Option(value))
    if (field) field.value = value
  }
}

function ask() {
  const given = question()
  history.replaceState(history.state, "", "#" + written(given))
  say("Counting ...")
  document.body.dataset.playground = "busy"
  const width = Math.max(340, Math.min(860, found("state").parentElement.clientWidth))
  worker.postMessage({ id: ++asked, question: JSON.stringify(given), width })
}

const SPARE = ["SRAM bytes", "reads", "writes", "total words", "x standard"]  // columns that a phone leaves out

function cells(values, kind, row, head) {
  values.forEach((value, k) => {
    const cell = row.appendChild(document.createElement(kind))
    cell.textContent = value
    cell.classList.toggle("spare", SPARE.includes(head[k]))
  })
}

function show(answer) {
  found("answer").hidden = answer.fault
  say(answer.fault ? answer.beside.trim() : "", answer.fault)
  if (answer.fault) return done()
  found("sentence").textContent = answer.sentence
  found("line").textContent = answer.line
  found("beside").textContent = answer.beside.trim()
  found("text").textContent = answer.text
  found("curve").textContent = "Drawing the curve ..."
  const table = found("table")
  table.textContent = ""
  cells(answer.head, "th", table.createTHead().insertRow(), answer.head)
  const body = table.createTBody()
  answer.rows.forEach((row, k) => {
    const line = body.insertRow()
    cells(row, "td", line, answer.head)
    line.classList.toggle("best", answer.best.includes(k))
  })
}

function done() { document.body.dataset.playground = "done" }

function offer({ hardware, schedules }) {
  const known = new Set([...form.hardware.options].map(one => one.value))
  for (const name of hardware) if (!known.has(name)) form.hardware.add(new Option(name))
  for (const name of schedules) found("schedules").appendChild(document.createElement("option")).value = name
}

function hear({ data }) {
  if (data.choices) return offer(data.choices)
  if (data.missing) {
    say(data.missing, true)
    return done()
  }
  if (data.id !== asked) return
  if (data.answer) return show(data.answer)
  found("curve").innerHTML = data.curve.svg
  found("note").textContent = data.curve.note
  done()
}

form.addEventListener("submit", event => { event.preventDefault(); history.pushState(null, "", location.href); ask() })
addEventListener("popstate", () => { read(); ask() })
found("copy").addEventListener("click", () => navigator.clipboard.writeText(found("line").textContent))
worker = new Worker("worker.js", { type: "module" })
worker.addEventListener("message", hear)
read()
ask()
say("Python is loading: some 14 MB, once ...")
