"use strict";
// Lists the jobs of the user whose token was typed in. Texts of jobs become text nodes, never markup.

const KEY = "bulkinfer-token";
const EVERY_MS = 2000;
const find = (id) => document.getElementById(id);
let timer = 0;

class NoToken extends Error {}

async function ask(path, method = "GET") {
  const headers = { Authorization: `Bearer ${sessionStorage.getItem(KEY)}` };
  const answer = await fetch(path, { method, headers, credentials: "omit" });
  const content = await answer.json();
  if (answer.status === 401) throw new NoToken(content.error);
  if (!answer.ok) throw new Error(content.error);
  return content;
}

function made(name, text = "", className = "") {
  const element = document.createElement(name);
  element.textContent = text;
  element.className = className;
  return element;
}

function button(text, action) {
  const element = made("button", text);
  element.type = "button";
  element.addEventListener("click", () => action().catch(say));
  return element;
}

function say(error) {
  find("message").textContent = error ? error.message : "";
  find("message").className = error ? "bad" : "";
}

function progressOf(job) {
  const cell = made("td");
  const found = job.progress;
  if (!found || found.done === undefined) return cell;
  const bar = document.createElement("progress");
  bar.max = found.total || 1;
  bar.value = found.done;
  bar.setAttribute("aria-label", `${found.percent} percent of job ${job.id}`);
  const count = (number) => number.toLocaleString("en");
  const pieces = [found.total === null ? count(found.done) : `${count(found.done)} of ${count(found.total)}`];
  const errors = Object.values(found.errors).reduce((sum, number) => sum + number, 0);
  if (errors) pieces.push(`${count(errors)} errors`);
  if (job.state === "running" && found.images_per_s) pieces.push(`${found.images_per_s.toFixed(1)} images/s`);
  if (job.state === "running" && found.left_s !== null) pieces.push(`${Math.ceil(found.left_s)} s left`);
  cell.append(bar, made("span", pieces.join(", "), "faint"));
  return cell;
}

function rowOf(job) {
  const row = document.createElement("tr");
  row.dataset.job = job.id;
  row.dataset.state = job.state;
  const state = made("td", job.is_cancel_asked && !job.has_ended ? "being cancelled" : job.state, job.state === "failed" ? "bad" : "");
  if (job.reason) state.append(made("div", job.reason));
  const actions = made("td", "", "actions");
  if (job.progress) actions.append(button("Report", () => openReport(job.id)));
  if (!job.has_ended && !job.is_cancel_asked) actions.append(" ", button("Cancel", () => cancel(job.id)));
  row.append(made("td", job.id), made("td", job.options.model_name), made("td", job.options.data_dir), state, progressOf(job),
    made("td", job.submitted.replace("T", " ").replace("Z", " UTC")), actions);
  return row;
}

async function openReport(id) {
  const { address } = await ask(`/jobs/${id}/report`, "POST");
  window.open(address, "_blank", "noopener");
}

async function cancel(id) {
  if (!window.confirm(`Cancel job ${id}?`)) return;
  await ask(`/jobs/${id}/cancel`, "POST");
  await show();
}

function signIn(isIn) {
  find("sign-in").hidden = isIn;
  find("signed-in").hidden = find("table").hidden = !isIn;
}

async function show() {
  const { user, jobs } = await ask("/jobs");
  find("user").textContent = user;
  const rows = jobs.map(rowOf);
  const focused = document.activeElement && document.activeElement.closest("tr[data-job]");
  if (!focused) find("jobs").replaceChildren(...rows);
  else for (const row of rows) keepFocus(row);
  signIn(true);
  say(jobs.length ? null : { message: "" });
  if (!jobs.length) {
    find("message").className = "";
    find("message").textContent = "No jobs yet.";
  }
}

// While a button has the focus its row stays, and the other cells of it are replaced: a keyboard is not thrown back.
function keepFocus(row) {
  const old = find("jobs").querySelector(`tr[data-job="${row.dataset.job}"]`);
  if (!old) find("jobs").prepend(row);
  else if (!old.contains(document.activeElement) || old.dataset.state !== row.dataset.state) old.replaceWith(row);
  else [...old.cells].slice(0, -1).forEach((cell, index) => cell.replaceWith(row.cells[index].cloneNode(true)));
}

async function follow() {
  clearTimeout(timer);
  try {
    await show();
  } catch (error) {
    say(error);
    if (error instanceof NoToken) {
      forget();
      return;
    }
  }
  timer = setTimeout(follow, EVERY_MS);
}

function forget() {
  clearTimeout(timer);
  sessionStorage.removeItem(KEY);
  find("jobs").replaceChildren();
  signIn(false);
}

find("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, find("token").value.trim());
  find("token").value = "";
  say(null);
  follow();
});
find("sign-out").addEventListener("click", () => {
  forget();
  say(null);
});
if (sessionStorage.getItem(KEY)) follow();
