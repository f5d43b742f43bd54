import { render } from "preact";
import { App } from "./App.jsx";
import { loadRetrievers } from "./state.js";
import "./page.css";

loadRetrievers();
render(<App />, document.getElementById("page"));
