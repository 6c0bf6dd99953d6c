// A relay before the server, whose connections a script can drop without touching either end.
import net from "node:net"

export class Relay {
  #target
  #pairs = new Set()
  #held = []
  #isHeld = false

  // Listens on a port of its own, before the server at `url`.
  async open(url) {
    this.aim(url)
    const server = net.createServer((client) => this.#accept(client))
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve))
    this.url = `http://127.0.0.1:${server.address().port}`
    return this
  }

  // From now on new connections go to the server at `url`.
  aim(url) {
    this.#target = Number(new URL(url).port)
  }

  // From now on new connections wait, until `release` is called.
  hold() {
    this.#isHeld = true
  }

  // Resets every connection, and holds new ones.
  drop() {
    this.hold()
    for (const [client, server] of this.#pairs) {
      client.resetAndDestroy()
      server.destroy()
    }
    this.#pairs.clear()
  }

  release() {
    this.#isHeld = false
    for (const client of this.#held.splice(0)) this.#join(client)
  }

  #accept(client) {
    client.on("error", () => {})
    if (this.#isHeld) this.#held.push(client)
    else this.#join(client)
  }

  #join(client) {
    const server = net.connect(this.#target, "127.0.0.1")
    const pair = [client, server]
    this.#pairs.add(pair)
    server.on("error", () => client.resetAndDestroy())
    client.pipe(server).pipe(client)
    for (const end of pair) end.on("close", () => this.#pairs.delete(pair))
  }
}
