// Browsers give no workers to pages that are opened from a folder. There, the worker of the search runs in a hidden
// frame: the same script, with the same messages.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = data =>
        this.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) }))
      const script = inside.document.createElement("script")
      this.ready = new Promise(resolve => script.addEventListener("load", resolve))
      script.src = url
      inside.document.body.append(script)
    }

    postMessage(data) {
      const inside = this.frame.contentWindow
      this.ready.then(() =>
        inside.dispatchEvent(new inside.MessageEvent("message", { data: inside.structuredClone(data) })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
