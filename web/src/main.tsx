import { createRoot } from "react-dom/client";
import "./app.css";
import { App } from "./ui/App.tsx";

const root = document.getElementById("root");
if (root) createRoot(root).render(<App />);
