import 'uplot/dist/uPlot.min.css';
import './panel.css';
import './gpu.css';
import './dashboard.css';
import './cells.css';
import './status.css';
import './memory.css';
import './diagnostics.css';
