// Browsers start no worker for a page that is opened from disk, and the theme searches in a worker.  Such a page runs the
// worker's script in a hidden frame instead, which has the functions of a worker.  The theme knows this class by its name.
const OF_A_WORKER = `
  postMessage = parent.postMessage.bind(parent);
  importScripts = (...addresses) => addresses.reduce((before, address) => before.then(() => new Promise((loaded) => {
    const script = document.createElement("script");
    script.src = address;
    script.onload = loaded;
    document.body.append(script);
  })), Promise.resolve());`;

class IFrameWorker extends EventTarget {
  constructor(address) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.append(this.frame);
    addEventListener("message", (event) => {
      if (event.source !== this.frame.contentWindow) return;
      this.dispatchEvent(new MessageEvent("message", { data: event.data }));
      this.onmessage?.(event);
    });
    const page = this.frame.contentDocument;
    page.open();
    page.write(`<body><script>${OF_A_WORKER}<\/script><script src="${address}"><\/script>`);
    page.close();
    this.loaded = new Promise((resolve) => { this.frame.onload = resolve; });
  }

  postMessage(data) {
    this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = IFrameWorker;
}
