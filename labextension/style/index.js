import 'uplot/dist/uPlot.min.css';
import './base.css';
import './cells.css';
import './status.css';
