// The search of the site runs in a worker, which browsers refuse to pages that are opened as files. On such pages this class
// runs the script of the worker in a hidden frame. Zensical would load a script from another site, unless a file has this name.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(address) {
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = (data) => this.onmessage?.({ data: structuredClone(data) })
      const script = inside.document.createElement("script")
      script.src = new URL(address, location.href).href
      this.loaded = new Promise((resolve) => { script.onload = resolve })
      inside.document.body.append(script)
    }

    async postMessage(data) {
      await this.loaded
      const inside = this.frame.contentWindow
      inside?.dispatchEvent(new inside.MessageEvent("message", { data: structuredClone(data) }))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
