// Times and durations as text.

import { h } from "./dom.js";

const two = (value) => String(value).padStart(2, "0");

// A time in the zone of the browser, such as 2026-11-28 09:30:05. The tables of languages of a browser load slowly.
export function moment(seconds) {
  const time = new Date(seconds * 1000);
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} ${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}

// The same for a list: the time of today, or the date.
export function brief(seconds) {
  const [day, time] = moment(seconds).split(" ");
  return day === moment(Date.now() / 1000).split(" ")[0] ? time.slice(0, 5) : day.slice(2);
}

// A duration, such as 240 ms, 1.4 s, 2 min 5 s or 3 h 20 min.
export function duration(seconds) {
  if (seconds < 0.9995) return `${Math.max(0, Math.round(seconds * 1000))} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 2880) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.round(minutes / 1440)} days`;
}

// The start of a step after the start of its run, and its duration; null in journals without times.
export function span(event, start) {
  if (event.ended === null || start === null) return null;
  const began = event.began ?? event.ended;
  const title = `${moment(began)} to ${moment(event.ended)}. A step begins at the end of the step before it; the tool calls of one reply begin together.`;
  return h("span", { class: "when", title }, `at ${duration(began - start)}`, event.began === null ? null : h("b", null, `took ${duration(event.ended - began)}`));
}
