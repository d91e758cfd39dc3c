import { render } from "preact";

import "./style.css";

function App() {
  return <main class="signin">mewstream</main>;
}

const root = document.getElementById("app");
if (root) render(<App />, root);
