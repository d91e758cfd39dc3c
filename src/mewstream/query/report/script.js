(function () {
  "use strict";
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const config = { displayModeBar: false, responsive: true };
  let chosen = null;

  function colour(name) { return getComputedStyle(root).getPropertyValue(name).trim(); }

  function themed(layout) {
    const made = Object.assign({}, layout);
    made.paper_bgcolor = "rgba(0,0,0,0)";
    made.plot_bgcolor = "rgba(0,0,0,0)";
    made.font = { family: "system-ui, -apple-system, Segoe UI, Roboto, Arial, sans-serif", size: 12, color: colour("--ink") };
    made.hoverlabel = { bgcolor: colour("--card"), bordercolor: colour("--line"), font: { color: colour("--ink") }, align: "left" };
    for (const key of Object.keys(layout)) {
      if (/^[xy]axis\d*$/.test(key)) {
        made[key] = Object.assign({ gridcolor: colour("--grid"), linecolor: colour("--line"), zerolinecolor: colour("--line"), automargin: false }, layout[key]);
      }
    }
    return made;
  }

  function draw() {
    root.dataset.theme = chosen || (dark.matches ? "dark" : "light");
    for (const [name, figure] of Object.entries(figures)) {
      Plotly.react(document.getElementById(name), figure.data, themed(figure.layout), config);
    }
    root.dataset.drawn = String(Object.keys(figures).length);
  }

  document.getElementById("theme").addEventListener("click", function () {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    draw();
  });
  dark.addEventListener("change", draw);
  draw();
})();
