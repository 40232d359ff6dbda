// A list of any length of which only what is in view is in the page. All rows have one height.

import { element } from "./base.js";

// VirtualList shows items in an element that scrolls. make returns the content of a row, choose is called with the index of
// the chosen one.
export class VirtualList {
  constructor(box, height, make, choose) {
    Object.assign(this, { box, height, make, choose, items: [], chosen: -1, from: -1 });
    this.list = element("ul", { class: "rows" });
    this.space = element("div", { class: "space" }, this.list);
    box.replaceChildren(this.space);
    box.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw(true)).observe(box);
  }

  set(items, chosen = -1) {
    Object.assign(this, { items, chosen });
    this.space.style.height = `${items.length * this.height}px`;
    this.draw(true);
  }

  // select marks a row, and moves it into view.
  select(i, focus = false) {
    if (i < 0 || i >= this.items.length) return;
    this.chosen = i;
    const [top, view] = [i * this.height, this.box.clientHeight];
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top + this.height > this.box.scrollTop + view) this.box.scrollTop = top + this.height - view;
    this.draw(true);
    if (focus) this.list.querySelector("[aria-current]")?.focus({ preventScroll: true });
  }

  draw(again = false) {
    const count = Math.ceil((this.box.clientHeight || 400) / this.height) + 6;
    const from = Math.max(0, Math.floor(this.box.scrollTop / this.height) - 3);
    if (from === this.from && !again) return;
    this.from = from;
    const focused = this.list.contains(document.activeElement);
    this.list.style.transform = `translateY(${from * this.height}px)`;
    this.list.replaceChildren(...this.items.slice(from, from + count).map((item, n) => {
      const i = from + n;
      const tab = i === (this.chosen < 0 ? 0 : this.chosen) ? "0" : "-1";
      const row = element("button", { type: "button", class: "rowbutton", tabindex: tab, "aria-current": i === this.chosen ? "true" : undefined }, ...this.make(item, i));
      row.addEventListener("click", (event) => this.choose(i, event));
      const line = element("li", { "aria-setsize": this.items.length, "aria-posinset": i + 1 }, row);
      line.style.height = `${this.height}px`;
      return line;
    }));
    if (focused) (this.list.querySelector("[aria-current]") ?? this.list.querySelector("button"))?.focus({ preventScroll: true });
  }
}
