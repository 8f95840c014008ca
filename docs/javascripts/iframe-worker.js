// The search of the site when its pages are opened from disk. Browsers start no worker for `file:`, so that the search
// runs in a hidden frame, which loads scripts from there. The plugin `offline` would fetch such a script from the net.

if (location.protocol === "file:") {
  // The script of the worker looks for this name and then takes its languages from beside itself.
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = "<!doctype html>";
      this.ready = new Promise((resolve) => this.frame.addEventListener("load", resolve, { once: true })).then(() => {
        const inside = this.frame.contentWindow;
        inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        inside.importScripts = async (...urls) => {
          for (const each of urls) await this.load(each);
        };
        return this.load(new URL(url, document.baseURI));
      });
      document.body.append(this.frame);
    }

    load(url) {
      const page = this.frame.contentDocument;
      return new Promise((resolve, reject) => {
        const script = Object.assign(page.createElement("script"), { src: url, onload: resolve });
        script.onerror = () => reject(new Error(`${url} does not load`));
        page.head.append(script);
      });
    }

    async postMessage(data) {
      await this.ready;
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
