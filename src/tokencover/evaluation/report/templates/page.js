"use strict";
(() => {
  const find = (place, name) => [...place.querySelectorAll(name)];
  const read = (id) => {
    const found = document.getElementById(id);
    return found ? JSON.parse(found.textContent) : null;
  };

  // Charts: drawn anew when light turns to dark.
  const views = new Map();
  const charts = read("charts") || {};
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const chosen = { shown: null, budgets: null };
  const tell = (view) => {
    for (const [name, value] of Object.entries(chosen)) {
      if (value === null) continue;
      try { view.signal(name, value); } catch (unknown) { /* not every chart has it */ }
    }
    view.runAsync();
  };
  // Colours that would not be seen on a dark ground.
  const lighterColors = { "#111111": "#e6edf3", "#393b79": "#8587d8", "#525252": "#a8a8a8", "#636363": "#b8b8b8" };
  const draw = async () => {
    for (const place of find(document, "[data-chart]")) {
      const specification = structuredClone(charts[place.dataset.chart]);
      delete specification.title;  // stands above the chart
      if (specification.facet) specification.columns = Math.max(1, Math.floor(place.clientWidth / 260));
      if (dark.matches) {
        let text = JSON.stringify(specification);
        for (const [color, lighter] of Object.entries(lighterColors)) text = text.replaceAll(color, lighter);
        Object.assign(specification, JSON.parse(text));
      }
      const result = await vegaEmbed(place, specification, {
        actions: { export: true, source: false, compiled: false, editor: false },
        theme: dark.matches ? "dark" : undefined, renderer: "svg",
        config: { background: "transparent", ...(dark.matches && {
          text: { color: "#e6edf3" }, axis: { gridColor: "#30363d", domainColor: "#8b949e", tickColor: "#8b949e" },
        }) },
      });
      views.set(place, result.view);
      tell(result.view);
    }
    document.body.dataset.drawn = "yes";
  };
  if (Object.keys(charts).length) { draw(); dark.addEventListener("change", draw); }

  // Which methods and budgets are shown.
  const listChecked = (kind) => find(document, `input[data-pick=${kind}]:checked`).map((box) => box.value);
  const pick = () => {
    chosen.shown = listChecked("method");
    chosen.budgets = listChecked("budget");
    for (const view of views.values()) tell(view);
    for (const chart of find(document, "figure[data-budget]")) {
      chart.hidden = !chosen.budgets.includes(chart.dataset.budget);
    }
    for (const row of find(document, "tr[data-method]")) {
      const hidden = (row.dataset.method && !chosen.shown.includes(row.dataset.method))
        || (row.dataset.budget && !chosen.budgets.includes(row.dataset.budget));
      row.hidden = Boolean(hidden) && document.getElementById("filter-table").checked;
    }
  };
  for (const box of find(document, "input[data-pick], #filter-table")) box.addEventListener("change", pick);
  for (const button of find(document, "button[data-all]")) {
    button.addEventListener("click", () => {
      for (const box of find(document, "input[data-pick=method]")) box.checked = button.dataset.all === "yes";
      pick();
    });
  }

  // Tables: a click on a heading sorts the lines of each budget; lines without numbers stay last.
  const number = (row, place) => {
    const cell = row.children[place];
    const found = cell ? parseFloat(cell.textContent.replace("−", "-")) : NaN;
    return found;
  };
  for (const table of find(document, "table[data-sortable]")) {
    find(table, "thead th").forEach((head, place) => {
      const button = head.querySelector("button");
      if (!button) return;
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") === "descending";
        for (const other of find(table, "thead th")) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        for (const body of table.tBodies) {
          const rows = find(body, "tr").filter((row) => row.children.length > 1);
          rows.sort((one, two) => {
            const [a, b] = [number(one, place), number(two, place)];
            if (Number.isNaN(a) && Number.isNaN(b))
              return one.children[0].textContent.localeCompare(two.children[0].textContent) * (up ? 1 : -1);
            if (Number.isNaN(a)) return 1;
            if (Number.isNaN(b)) return -1;
            return up ? a - b : b - a;
          });
          for (const row of rows) body.append(row);
        }
      });
    });
  }

  // Each image of an example is in the page once.
  for (const article of find(document, "article.kept")) {
    const whole = find(article, "img");
    for (const image of find(article, "image[data-same]"))
      image.setAttribute("href", whole[image.dataset.same].src);
  }
  if (window.innerWidth < 640) for (const each of find(document, ".about, .picker")) each.open = false;

  // What a token is, without a pointer: tap it, or move to it with the keyboard.
  const prepare = (place) => {
    for (const figure of find(place, "figure")) {
      const tokens = find(figure, "rect").filter((token) => token.querySelector("title"));
      if (!tokens.length || figure.querySelector(".told")) continue;
      const told = document.createElement("p");
      told.className = "note told";
      told.setAttribute("aria-live", "polite");
      told.textContent = "Tap a token, or move to it with Tab and the arrows: it says what it is.";
      figure.append(told);
      for (const drawing of find(figure, "svg")) drawing.setAttribute("role", "group");
      tokens.forEach((token, place) => {
        token.setAttribute("tabindex", place ? "-1" : "0");
        token.setAttribute("role", "img");
        token.setAttribute("aria-label", token.querySelector("title").textContent);
        const show = () => { told.textContent = token.querySelector("title").textContent; };
        token.addEventListener("click", show);
        token.addEventListener("focus", show);
        token.addEventListener("keydown", (event) => {
          const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
          if (!step) return;
          event.preventDefault();
          tokens[(place + step + tokens.length) % tokens.length].focus();
        });
      });
    }
  };
  prepare(document);

  // Questions that one method lost or won against another.
  const answers = read("answers");
  const panel = document.getElementById("changes");
  if (answers && panel) {
    const get = (name) => panel.querySelector(`[data-choice=${name}]`);
    const name = (each) => each.budget ? `${each.method}, budget ${each.budget}` : each.method;
    const label = (each) => each.run ? `other run: ${name(each)}` : name(each);
    const drawn = new Map(find(document, "article.kept")
      .map((each) => [`${each.dataset.task}\n${each.dataset.example}`, each]));
    for (const side of ["mine", "other"]) {
      answers.methods.forEach((each, place) => get(side).add(new Option(label(each), place)));
    }
    get("mine").value = panel.dataset.mine;
    get("other").value = panel.dataset.other;
    for (const task of new Set(answers.questions.map((each) => each.task))) get("task").add(new Option(task, task));
    const right = (score) => score !== null && score >= 0.5;
    // The two images of a question, side by side under its line.
    const findSide = (article, each) => each.run ? undefined : find(article, ".pair > div")
      .find((side) => side.dataset.method === each.method && side.dataset.budget === each.budget);
    const openPictures = (row, button, article, sides) => {
      if (row.nextSibling && row.nextSibling.className === "pictures") {
        row.nextSibling.remove();
        button.setAttribute("aria-expanded", "false");
        return;
      }
      button.setAttribute("aria-expanded", "true");
      const below = document.createElement("tr");
      below.className = "pictures";
      const cell = below.insertCell();
      cell.colSpan = row.children.length;
      const pair = document.createElement("div");
      pair.className = "pair kept";
      for (const each of sides) {
        const found = findSide(article, each);
        const side = found ? found.cloneNode(true) : document.createElement("p");
        if (found) {
          side.hidden = false;
          find(side, ".told").forEach((old) => old.remove());
        } else side.textContent = `${label(each)}: not drawn; images are of ${find(article, ".pair > div")
          .map((one) => `${one.dataset.method} ${one.dataset.budget}`.trim()).join(", ")}.`;
        pair.append(side);
      }
      cell.append(pair);
      row.after(below);
      prepare(below);
    };
    const addButton = (row, question, sides) => {
      const cell = row.insertCell();
      cell.className = "words";
      const article = drawn.get(`${question.task}\n${question.id}`);
      if (!article) { cell.textContent = "-"; return; }
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "show";
      button.setAttribute("aria-expanded", "false");
      button.setAttribute("aria-label", `show what was kept: ${question.question || question.id}`);
      button.addEventListener("click", () => openPictures(row, button, article, sides));
      cell.append(button);
    };
    const show = () => {
      const [mine, other] = [answers.methods[get("mine").value], answers.methods[get("other").value]];
      const body = panel.querySelector("tbody");
      panel.querySelector("[data-head=method]").textContent = label(mine);
      panel.querySelector("[data-head=against]").textContent = label(other);
      const heads = find(panel, "thead th");
      body.replaceChildren();
      const counts = { lost: 0, won: 0 };
      answers.questions.forEach((question, place) => {
        const [a, b] = [mine.scores[place], other.scores[place]];
        if (a === null || b === null || right(a) === right(b)) return;
        if (get("task").value && question.task !== get("task").value) return;
        const change = right(a) ? "won" : "lost";
        counts[change] += 1;
        if (get("change").value && change !== get("change").value) return;
        if (get("drawn") && get("drawn").checked && !drawn.has(`${question.task}\n${question.id}`)) return;
        const row = body.insertRow();
        const texts = [question.task, question.question || question.id, question.right.join(" | "),
          other.answers[place], mine.answers[place], change];
        texts.forEach((text, column) => {
          const cell = row.insertCell();
          cell.className = "words";
          cell.dataset.label = heads[column].textContent;
          cell.textContent = text || "-";
        });
        row.lastChild.classList.add(change);
        if (drawn.size) addButton(row, question, [mine, other]);
      });
      panel.querySelector("[data-count]").textContent = `${counts.lost} lost, ${counts.won} won`;
    };
    for (const list of find(panel, "[data-choice]")) list.addEventListener("change", show);
    show();
  }
})();
