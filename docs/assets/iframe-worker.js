// A browser starts no worker from a file: here a hidden frame answers the site's search instead. Its name is what the
// offline plugin looks for, which else fetches such a file from the network.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      const base = new URL(url, location);
      const load = (each) => new Promise((loaded, failed) => {
        const script = frame.contentDocument.createElement("script");
        Object.assign(script, { src: new URL(each, base), onload: loaded, onerror: failed });
        frame.contentDocument.body.append(script);
      });
      inside.importScripts = (...urls) => urls.reduce((before, each) => before.then(() => load(each)), Promise.resolve());
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = load(base);
      this.inside = inside;
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    set onmessage(handler) { this.addEventListener("message", handler); }
    terminate() { this.inside.frameElement.remove(); }
  };
}
