// A list of any length of which only what is in view is in the page. All rows have one height.

import { element } from "./base.js";

const spare = 10; // rows that are made above and below those in view

// VirtualList shows items in an element that scrolls. make returns the content of a row, choose is called with the index of
// the chosen one.
export class VirtualList {
  constructor(box, height, make, choose) {
    Object.assign(this, { box, height, make, choose, items: [], chosen: -1, from: 0 });
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

  // draw makes the rows in view, and some around: those that are there stay, so that scrolling makes few.
  draw(again = false) {
    const view = Math.ceil((this.box.clientHeight || 400) / this.height) + 1;
    const first = Math.floor(this.box.scrollTop / this.height);
    const end = Math.min(this.items.length, first + view);
    if (!again && first >= this.from && end <= this.from + this.list.children.length) return;
    const from = Math.max(0, first - spare);
    const focused = this.list.contains(document.activeElement);
    const made = again ? [] : [...this.list.children];
    const rows = [];
    for (let i = from; i < Math.min(this.items.length, end + spare); i++) rows.push(made[i - this.from] ?? this.row(i));
    this.from = from;
    this.list.style.transform = `translateY(${from * this.height}px)`;
    this.list.replaceChildren(...rows);
    if (focused) (this.list.querySelector("[aria-current]") ?? this.list.querySelector("button"))?.focus({ preventScroll: true });
  }

  row(i) {
    const tab = i === (this.chosen < 0 ? 0 : this.chosen) ? "0" : "-1";
    const button = element("button", { type: "button", class: "rowbutton", tabindex: tab, "aria-current": i === this.chosen ? "true" : undefined }, ...this.make(this.items[i], i));
    button.addEventListener("click", (event) => this.choose(i, event));
    const line = element("li", { "aria-setsize": this.items.length, "aria-posinset": i + 1 }, button);
    line.style.height = `${this.height}px`;
    return line;
  }
}
