// A list of any length: only visible rows are in the document. Rows may have any height.

const BEYOND = 600; // pixels above and below the visible rows; 0 until the first paint

export class Rows {
  // `scroller` scrolls; `like` is a list whose rows are about as high; `at` is
  // the row to begin at; `list` is an element inside of it that this object fills.
  constructor(scroller, list, { count, render, estimate = 64, role = "listitem", like = null, at = 0 }) {
    Object.assign(this, { scroller, list, count, render, role });
    this.heights = new Float64Array(count).fill(estimate);
    if (like) this.heights.set(like.heights.subarray(0, count));
    this.offsets = new Float64Array(count + 1);
    this.nodes = new Map();
    this.beyond = 0;
    this.isFresh = at <= 0; // at its top and not painted: what would be measured is worked out twice then
    this.above = document.createElement("div");
    this.below = document.createElement("div");
    for (const spacer of [this.above, this.below]) spacer.setAttribute("role", "presentation");
    list.replaceChildren(this.above, this.below);
    this.sum(0);
    this.observer = new ResizeObserver((entries) => this.measured(entries));
    this.onScroll = () => this.measure();
    scroller.addEventListener("scroll", this.onScroll, { passive: true });
    this.resized = new ResizeObserver(() => {
      this.next = requestAnimationFrame(() => {
        this.beyond = BEYOND;
        this.measure();
      });
    });
    this.resized.observe(scroller);
    if (at > 0) {
      this.below.style.height = `${this.offsets[count]}px`;
      scroller.scrollTop = this.start + this.offsets[at] - scroller.clientHeight / 3;
    }
    this.update();
  }

  destroy() {
    this.observer.disconnect();
    this.resized.disconnect();
    cancelAnimationFrame(this.next);
    this.scroller.removeEventListener("scroll", this.onScroll);
  }

  sum(from) {
    for (let at = from; at < this.count; at++) this.offsets[at + 1] = this.offsets[at] + this.heights[at];
  }

  measured(entries) {
    let first = Infinity;
    for (const entry of entries) {
      const at = Number(entry.target.dataset.at);
      const height = entry.borderBoxSize[0].blockSize;
      if (height && this.nodes.get(at) === entry.target && Math.abs(this.heights[at] - height) > 0.5) {
        this.heights[at] = height;
        first = Math.min(first, at);
      }
    }
    if (first === Infinity) return;
    this.sum(first);
    this.update();
  }

  find(offset) {
    let low = 0;
    let high = this.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.offsets[middle + 1] <= offset) low = middle + 1;
      else high = middle;
    }
    return Math.min(low, this.count - 1);
  }

  get start() {
    let top = 0;
    for (let node = this.list; node && node !== this.scroller; node = node.offsetParent) top += node.offsetTop;
    return top;
  }

  // Draws the visible rows at the present scroll position.
  measure() {
    this.isFresh = false;
    this.update();
  }

  update() {
    if (!this.count) return;
    const top = this.isFresh ? 0 : this.scroller.scrollTop - this.start;
    const height = this.isFresh ? innerHeight : this.scroller.clientHeight;
    const first = this.find(Math.max(0, top - this.beyond));
    const last = this.find(Math.max(0, top + height + this.beyond));
    for (const [at, node] of this.nodes) {
      if (at >= first && at <= last) continue;
      if (node.contains(document.activeElement)) this.list.focus({ preventScroll: true });
      this.observer.unobserve(node);
      node.remove();
      this.nodes.delete(at);
    }
    let before = this.above;
    for (let at = first; at <= last; at++) {
      let node = this.nodes.get(at);
      if (!node) {
        node = this.render(at);
        node.dataset.at = at;
        node.setAttribute("role", this.role);
        node.setAttribute("aria-setsize", this.count);
        node.setAttribute("aria-posinset", at + 1);
        this.nodes.set(at, node);
        before.after(node);
        this.observer.observe(node);
      }
      before = node;
    }
    this.above.style.height = `${this.offsets[first]}px`;
    this.below.style.height = `${this.offsets[this.count] - this.offsets[last + 1]}px`;
  }

  // Scrolls a row into view, and returns it.
  show(at, { block = "nearest" } = {}) {
    if (at < 0 || at >= this.count) return null;
    if (!this.nodes.has(at)) {
      this.scroller.scrollTop = this.start + this.offsets[at] - (block === "start" ? 0 : this.scroller.clientHeight / 3);
      this.measure();
    }
    const node = this.nodes.get(at);
    node?.scrollIntoView({ block });
    this.measure();
    return node;
  }

  redraw(at) {
    const node = this.nodes.get(at);
    if (!node) return;
    this.observer.unobserve(node);
    node.remove();
    this.nodes.delete(at);
    this.update();
  }
}
