// Python in a worker, so that the page stays alive while it counts. A message is {id, question, width}; what is posted
// back is {choices}, {missing: why there is no answer}, or {id, answer} and then {id, curve}.
const here = new URL(".", location)

async function load() {
  const { loadPyodide } = await import(new URL("../pyodide/pyodide.mjs", here)).catch(() => {
    throw "This copy of the site has no Pyodide, so nothing is counted here; iosim on your machine does it."
  })
  const python = await loadPyodide({ indexURL: new URL("../pyodide/", here).href })
  for (const name of ["click", "iosim"])
    python.unpackArchive(await (await fetch(new URL(`${name}.whl`, here))).arrayBuffer(), "wheel")
  python.runPython(await (await fetch(new URL("ask.py", here))).text())
  postMessage({ choices: JSON.parse(python.runPython("choices()")) })
  return name => python.globals.get(name)
}

const loaded = load().catch(fault => { postMessage({ missing: String(fault) }) })

onmessage = async ({ data: { id, question, width } }) => {
  const named = await loaded
  if (!named) return
  try {
    const answer = JSON.parse(named("answer")(question))
    postMessage({ id, answer })
    if (!answer.fault) postMessage({ id, curve: JSON.parse(named("curve")(question, width)) })
  } catch (fault) {
    postMessage({ missing: String(fault) })
  }
}
